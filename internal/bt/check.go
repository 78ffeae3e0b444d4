// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// A checker gives types to a clause for one target at a time. The types of maps are known only
// when all clauses have been seen. So it goes over the clauses until nothing changes, and once
// more to report errors.
type checker struct {
	script *Script
	src    *Source
	kernel *kernel
	params []string
	set    settings
	unsafe bool
	check  bool // nothing will run
	child  uint32

	maps     map[string]*mapDef
	order    []*mapDef
	layouts  map[*cstruct]*Type
	enumSeen map[string]int64
	enumIn   map[string]*btf.Enum

	unused  [][2]Pos        // values that nobody asks for
	errs    []error         // of the clause
	spoiled map[string]bool // variables whose assignment is wrong

	ctx   context.Context // of the compilation
	steps uint

	target  *Target
	vars    map[string]*Type
	varPos  map[string][2]Pos
	wide    map[string]*Type // the types that variables need
	grown   bool
	final   bool
	changed bool
	loops   int
	uses    uses
	nested  int               // functions around
	deepest int               // of the clause
	fn, fns int               // the function that is checked, and how many there are: bodies of for
	homes   map[string]int    // the function that has a variable to itself; shared: several have it
	each    map[string]bool   // variables of for
	whole   map[*Ident]*Tuple // args as a whole: all of them
}

// shared is the home of variables that several functions use.
const shared = -1

// uses is the properties of the target that a clause needs.
type uses struct {
	types   bool // args, argN, retval: the code depends on the prototype
	fields  bool // more of it than what a system call returned
	name    bool // func, probe
	context bool // stacks, ctx: the kind of program matters
	address bool // func beside ksym(): the address of the target
}

// unknown stands for the value of a map that nothing has been assigned to yet.
var unknown = &Type{Kind: Number, Size: 8, Signed: true, Lit: true}

func newChecker(s *Script, k *kernel) *checker {
	return &checker{
		script: s, src: s.Src, kernel: k, set: defaults(), ctx: context.Background(),
		maps: map[string]*mapDef{}, layouts: map[*cstruct]*Type{},
	}
}

func (c *checker) fail(pos, end Pos, format string, args ...any) {
	panic(&Error{Src: c.src, Pos: pos, End: end, Msg: shown(fmt.Sprintf(format, args...))})
}

func (c *checker) failAt(e Expr, format string, args ...any) {
	pos, end := e.span()
	c.fail(pos, end, format, args...)
}

// at gives line and column for the other place of a conflict.
func (c *checker) at(p [2]Pos) string {
	line, col := c.src.Position(p[0])
	return fmt.Sprintf("line %d, column %d", line, col)
}

// clause types one clause for one target.
func (c *checker) clause(cl *Clause, t *Target) (err error) {
	defer catch(&err)
	c.target, c.wide, c.grown = t, nil, true
	for round := 0; c.grown; round++ { // a variable has the room of its longest value from the start
		if round == maxRoundsOfTypes {
			c.fail(t.pos.pos, t.pos.end, "the types of variables depend on one another without end")
		}
		c.vars, c.varPos, c.loops, c.uses = map[string]*Type{}, map[string][2]Pos{}, 0, uses{}
		c.fn, c.fns, c.homes, c.each = 0, 0, map[string]int{}, map[string]bool{}
		c.nested, c.deepest, c.whole = 0, 0, map[*Ident]*Tuple{}
		c.grown, c.errs, c.spoiled = false, nil, map[string]bool{}
		if cl.Pred != nil {
			c.guard(nil, func() { c.condition(cl.Pred) })
		}
		c.stmts(cl.Body)
		if len(c.errs) > 0 {
			return joined(c.errs)
		}
		c.wide = c.vars
	}
	return nil
}

// maxRoundsOfTypes bounds how often a script is gone over until its types are
// known: each round can settle one more of a chain of variables or maps.
const maxRoundsOfTypes = 200

// step lets the end of the context end the compilation, however large the
// program is.
func (c *checker) step() {
	if c.steps++; c.steps%1024 == 0 {
		if err := c.ctx.Err(); err != nil {
			panic(&stoppedError{err})
		}
	}
}

// A stoppedError is the end of the context.
type stoppedError struct{ error }

func (e *stoppedError) Unwrap() error { return e.error }

// catch turns the panic of fail into an error.
func catch(err *error) {
	if r := recover(); r != nil {
		switch e := r.(type) {
		case *Error:
			*err = e
		case *unsupportedError:
			*err = e
		case *stoppedError:
			*err = fmt.Errorf("compiling: %w", e)
		default:
			panic(r)
		}
	}
}

func (c *checker) stmts(list []Stmt) {
	for _, s := range list {
		c.guard(s, func() { c.stmt(s) })
	}
}

func (c *checker) stmt(s Stmt) {
	c.step()
	switch s := s.(type) {
	case *ExprStmt:
		c.effect(s.X)
	case *Assign:
		c.assign(s)
	case *Let:
		c.let(s)
	case *If:
		c.condition(s.Cond)
		v, known := c.constant(s.Cond)
		if s.comptime && !known {
			c.failAt(s.Cond, "this is not a constant")
		}
		if !s.comptime || v != 0 {
			c.stmts(s.Then)
		}
		if !s.comptime || v == 0 {
			c.stmts(s.Else)
		}
	case *Unroll:
		c.expr(s.N)
		if n, ok := c.constant(s.N); !ok || n < 1 || n > 100 {
			c.failAt(s.N, "unroll takes a number from 1 to 100")
		}
		c.loops++
		c.stmts(s.Body)
		c.loops--
	case *While:
		c.while(s)
	case *For:
		c.forEach(s)
	case *Block:
		c.stmts(s.Body)
	case *Jump:
		if s.X != nil && !c.expr(s.X).number() {
			c.failAt(s.X, "return takes a number, not %s", s.X.typ())
		}
		if s.Word != "return" && c.loops == 0 {
			c.fail(s.pos, s.end, "%s outside a loop", s.Word)
		}
	}
}

// effect is an expression that is evaluated for its effect.
func (c *checker) effect(x Expr) {
	switch x := x.(type) {
	case *Call:
		c.call(x, true)
	case *Ternary:
		c.condition(x.C)
		c.effect(x.X)
		c.effect(x.Y)
	case *BlockExpr:
		c.stmts(x.Body)
		if x.X != nil {
			c.effect(x.X)
		}
	case *IncDec:
		c.expr(x)
	default:
		c.value(x)
		c.notUsed(x)
	}
}

// notUsed notes the place of a value that is not used, for a warning.
func (c *checker) notUsed(x Expr) {
	pos, end := x.span()
	if !slices.Contains(c.unused, [2]Pos{pos, end}) {
		c.unused = append(c.unused, [2]Pos{pos, end})
	}
}

func (c *checker) constant(e Expr) (int64, bool) {
	if p, ok := e.(*Param); ok {
		return c.param(p)
	}
	return constant(e, c.script)
}

func (c *checker) param(p *Param) (int64, bool) {
	if p.N < 0 {
		return int64(len(c.params)), true
	}
	if p.N == 0 || p.N > len(c.params) {
		return 0, true
	}
	v, ok := number(strings.TrimPrefix(c.params[p.N-1], "-"))
	if strings.HasPrefix(c.params[p.N-1], "-") {
		return -int64(v), ok
	}
	return int64(v), ok
}

// condition is an expression that is true or false.
func (c *checker) condition(e Expr) {
	t := c.expr(e)
	if !t.word() && t.Kind != String {
		c.failAt(e, "a condition is a number, not %s", t)
	}
}

// value is an expression whose value can be kept.
func (c *checker) value(e Expr) *Type {
	t := c.expr(e)
	switch {
	case t.Kind == None:
		c.failAt(e, "this has no value")
	case t.charArray():
		return stringOf(t.Size)
	}
	return t
}

func (c *checker) let(l *Let) {
	var t *Type
	if l.As != nil {
		t = c.resolve(l.As)
		if t.Kind == Pointer && t.Space != c.home() {
			p := *t
			p.Space, t = c.home(), &p
		}
	}
	if l.Value != nil {
		v := c.value(l.Value)
		if t == nil {
			t = v
		} else if !compatible(t, v) {
			c.failAt(l.Value, "%s is declared as %s, not %s", l.Var.Name, t, v)
		} else if t.Kind == Pointer {
			p := *t
			p.Space, t = v.Space, &p
		}
	}
	if t == nil {
		t = unknown
	}
	if old := c.vars[l.Var.Name]; old != nil {
		c.failAt(l.Var, "%s is there already, from %s", l.Var.Name, c.at(c.varPos[l.Var.Name]))
	}
	c.setVar(l.Var, t)
}

// home is the memory that an address of unknown origin is taken to be in.
func (c *checker) home() Space {
	if c.target.Kind.user() {
		return InUser
	}
	return InKernel
}

func (c *checker) setVar(v *Var, t *Type) {
	c.mention(v)
	if c.each[v.Name] {
		c.failAt(v, "%s is an entry of the map and cannot be assigned: assign to the map, or to another variable", v.Name)
	}
	old := c.vars[v.Name]
	if old == nil {
		pos, end := v.span()
		c.varPos[v.Name] = [2]Pos{pos, end}
		if w := c.wide[v.Name]; w != nil && (t == unknown || w.Kind == t.Kind && !t.word()) {
			if u, ok := unify(w, t); ok {
				t = u
			}
		}
		c.vars[v.Name] = t
		v.setType(t)
		return
	}
	u, ok := c.unify(old, t)
	if !ok {
		c.failAt(v, "type conflict: %s is %s since %s, and cannot be %s", v.Name, old, c.at(c.varPos[v.Name]), t)
	}
	c.grown = c.grown || u.store() > old.store()
	c.vars[v.Name] = u
	v.setType(u)
}

func (c *checker) assign(a *Assign) {
	if m, ok := a.Target.(*MapRef); ok {
		c.assignMap(a, m)
		return
	}
	v := a.Target.(*Var)
	t := c.value(a.Value)
	if a.Op != "" {
		c.mention(v)
		old := c.vars[v.Name]
		if old == nil {
			c.failAt(v, "%s has no value yet", v.Name)
		}
		if !old.number() || !t.number() {
			c.fail(a.pos, a.end, "%s= needs numbers, not %s and %s", a.Op, old, t)
		}
		v.setType(old)
		return
	}
	c.setVar(v, t)
}
