// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"seine/internal/row"
)

// A mapDef is a @map: the types of its keys and values, over the whole script.
type mapDef struct {
	name     string
	keys     []*Type
	keyNames []string // for JSON
	value    *Type    // nil: not known yet
	used     bool     // keys are known
	keyed    bool

	valuePos, keyPos [2]Pos // where they were first seen
	read             bool   // the value of an aggregation is read in the kernel
	index            int
}

// A checker gives types to a clause for one target at a time. Maps are known
// only when all clauses have been seen, so that it goes over them until nothing
// changes, and once more to complain.
type checker struct {
	script *Script
	src    *Source
	kernel *kernel
	params []string
	strLen int
	unsafe bool

	maps     map[string]*mapDef
	order    []*mapDef
	layouts  map[*cstruct]*Type
	enumSeen map[string]int64

	target  *Target
	vars    map[string]*Type
	varPos  map[string][2]Pos
	final   bool
	changed bool
	loops   int
	uses    uses
}

// uses is what a clause needs of its target.
type uses struct {
	types bool // args, argN, retval: the code depends on the prototype
	name  bool // func, probe
}

// unknown stands for the value of a map that nothing has been assigned to yet.
var unknown = &Type{Kind: Number, Size: 8, Signed: true, Lit: true}

func newChecker(s *Script, k *kernel) *checker {
	return &checker{
		script: s, src: s.Src, kernel: k, strLen: 256,
		maps: map[string]*mapDef{}, layouts: map[*cstruct]*Type{},
	}
}

func (c *checker) fail(pos, end Pos, format string, args ...any) {
	panic(&Error{Src: c.src, Pos: pos, End: end, Msg: fmt.Sprintf(format, args...)})
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
	c.target, c.vars, c.varPos, c.loops, c.uses = t, map[string]*Type{}, map[string][2]Pos{}, 0, uses{}
	if cl.Pred != nil {
		c.condition(cl.Pred)
	}
	c.stmts(cl.Body)
	return nil
}

// catch turns the panic of fail into an error.
func catch(err *error) {
	if r := recover(); r != nil {
		e, ok := r.(*Error)
		if !ok {
			panic(r)
		}
		*err = e
	}
}

func (c *checker) stmts(list []Stmt) {
	for _, s := range list {
		c.stmt(s)
	}
}

func (c *checker) stmt(s Stmt) {
	switch s := s.(type) {
	case *ExprStmt:
		if call, ok := s.X.(*Call); ok {
			c.call(call, true)
			return
		}
		if t, ok := s.X.(*Ternary); ok {
			c.condition(t.C)
			c.stmt(&ExprStmt{t.X})
			c.stmt(&ExprStmt{t.Y})
			return
		}
		c.expr(s.X)
	case *Assign:
		c.assign(s)
	case *Let:
		c.let(s)
	case *If:
		c.condition(s.Cond)
		c.stmts(s.Then)
		c.stmts(s.Else)
	case *Unroll:
		c.expr(s.N)
		if n, ok := c.constant(s.N); !ok || n < 0 || n > 100 {
			c.failAt(s.N, "unroll takes a number from 0 to 100")
		}
		c.loops++
		c.stmts(s.Body)
		c.loops--
	case *While:
		c.condition(s.Cond)
		c.loops++
		c.stmts(s.Body)
		c.loops--
	case *Block:
		c.stmts(s.Body)
	case *Jump:
		if s.Word != "return" && c.loops == 0 {
			c.fail(s.pos, s.end, "%s outside a loop", s.Word)
		}
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
	}
	if l.Value != nil {
		v := c.value(l.Value)
		if t == nil {
			t = v
		} else if !compatible(t, v) {
			c.failAt(l.Value, "%s is declared as %s, not %s", l.Var.Name, t, v)
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

func (c *checker) setVar(v *Var, t *Type) {
	old := c.vars[v.Name]
	if old == nil {
		pos, end := v.span()
		c.varPos[v.Name] = [2]Pos{pos, end}
		c.vars[v.Name] = t
		v.setType(t)
		return
	}
	u, ok := unify(old, t)
	if !ok {
		c.failAt(v, "type conflict: %s is %s since %s, and cannot be %s", v.Name, old, c.at(c.varPos[v.Name]), t)
	}
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

func (c *checker) assignMap(a *Assign, m *MapRef) {
	d := c.mapKeys(m)
	if call, ok := a.Value.(*Call); ok && aggregations[call.Name] != 0 {
		if a.Op != "" {
			c.fail(a.pos, a.end, "%s() is assigned with =", call.Name)
		}
		c.setMap(m, d, c.aggregation(call))
		return
	}
	t := c.value(a.Value)
	if a.Op != "" {
		if !t.number() {
			c.failAt(a.Value, "%s= needs a number, not %s", a.Op, t)
		}
		if d.value == nil {
			c.setMap(m, d, &Type{Kind: Number, Size: 8, Signed: t.Signed})
		} else if !d.value.number() {
			c.fail(a.pos, a.end, "type conflict: %s is %s since %s, and takes no %s=", m.Name, d.value, c.at(d.valuePos), a.Op)
		}
		m.setType(d.value)
		return
	}
	c.setMap(m, d, t)
}

func (c *checker) setMap(m *MapRef, d *mapDef, t *Type) {
	if t == unknown {
		return
	}
	pos, end := m.span()
	if d.value == nil {
		d.value, d.valuePos = t, [2]Pos{pos, end}
		c.changed = true
	} else {
		u, ok := unify(d.value, t)
		if !ok {
			c.fail(pos, end, "type conflict: %s is %s since %s, and cannot be %s", m.Name, d.value, c.at(d.valuePos), t)
		}
		if !same(u, d.value) {
			c.changed = true
		}
		d.value = u
	}
	m.setType(d.value)
}

// mapKeys types the keys of a reference and joins them with those known.
func (c *checker) mapKeys(m *MapRef) *mapDef {
	d := c.maps[m.Name]
	if d == nil {
		d = &mapDef{name: m.Name, index: len(c.order)}
		c.maps[m.Name] = d
		c.order = append(c.order, d)
	}
	var keys []*Type
	for _, k := range m.Keys {
		t := c.value(k)
		if t.aggregate() {
			c.failAt(k, "%s cannot be a key", t)
		}
		if t.Kind == Number && t != unknown {
			t = &Type{Kind: Number, Size: 8, Signed: t.Signed || t.Size < 8 && !t.Lit, Bool: t.Bool, Lit: t.Lit, Space: t.Space}
			if kt := k.typ(); kt.Size < 8 && !kt.Signed {
				t.Signed = true // an unsigned number of fewer bits fits
			}
		}
		keys = append(keys, t)
	}
	pos, end := m.span()
	if !d.used {
		d.keys, d.used, d.keyed, d.keyPos = keys, true, m.Keys != nil, [2]Pos{pos, end}
		d.keyNames = keyNames(m.Keys)
		c.changed = true
		return d
	}
	if len(keys) != len(d.keys) {
		c.fail(pos, end, "type conflict: %s has %s since %s, and %s here", m.Name, plural(len(d.keys), "key"), c.at(d.keyPos), plural(len(keys), "key"))
	}
	for i, t := range keys {
		u, ok := unify(d.keys[i], t)
		if !ok {
			kp, ke := m.Keys[i].span()
			c.fail(kp, ke, "type conflict: key %d of %s is %s since %s, and %s here", i+1, m.Name, d.keys[i], c.at(d.keyPos), t)
		}
		if !same(u, d.keys[i]) {
			c.changed = true
		}
		d.keys[i] = u
	}
	return d
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if n == 0 {
		return "no " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// unify gives the type that holds values of both.
func unify(a, b *Type) (*Type, bool) {
	switch {
	case a == unknown:
		return b, true
	case b == unknown:
		return a, true
	case a.Kind == Pointer && b.Kind == Number, a.Kind == Number && b.Kind == Pointer:
		if a.Kind == Pointer {
			return a, true
		}
		return b, true
	case a.Kind != b.Kind:
		return nil, false
	}
	switch a.Kind {
	case Number:
		if a.Lit {
			a, b = b, a
		}
		if b.Lit && !a.Lit || a.Signed == b.Signed && a.Size >= b.Size && a.Space == b.Space {
			return a, true
		}
		return &Type{Kind: Number, Size: max(a.Size, b.Size), Signed: a.Signed || b.Signed, Lit: a.Lit && b.Lit, Space: max(a.Space, b.Space)}, true
	case String:
		if a.Len < b.Len {
			return b, true
		}
		return a, true
	case Buffer, Array:
		if a.store() < b.store() {
			return b, true
		}
		return a, true
	case Record:
		return a, a.Rec.name == b.Rec.name && a.Size == b.Size
	case Combo:
		if len(a.Elems) != len(b.Elems) {
			return nil, false
		}
		t := &Type{Kind: Combo}
		for i := range a.Elems {
			e, ok := unify(a.Elems[i], b.Elems[i])
			if !ok {
				return nil, false
			}
			t.Elems = append(t.Elems, e)
		}
		return t, true
	case LhistOf:
		return a, a.min == b.min && a.max == b.max && a.step == b.step
	case SumOf, MinOf, MaxOf, AvgOf, StatsOf:
		if a.Signed {
			return a, true
		}
		return b, true
	}
	return a, true
}

func same(a, b *Type) bool {
	return a == b || a.Kind == b.Kind && a.Size == b.Size && a.Signed == b.Signed && a.Len == b.Len && a.store() == b.store() && a.Lit == b.Lit
}

// compatible says whether a value of type b can be kept in a.
func compatible(a, b *Type) bool {
	_, ok := unify(a, b)
	return ok
}

// expr gives the type of an expression.
func (c *checker) expr(e Expr) *Type {
	t := c.typeOf(e)
	e.setType(t)
	return t
}

func (c *checker) typeOf(e Expr) *Type {
	switch e := e.(type) {
	case *Int:
		if e.U64 {
			return &Type{Kind: Number, Size: 8, Lit: true}
		}
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: true}
	case *Str:
		return stringOf(len(e.V) + 1)
	case *Param:
		if e.Str {
			return stringOf(c.strLen)
		}
		if _, ok := c.param(e); !ok {
			c.failAt(e, "$%d is %q, no number: write str($%d)", e.N, c.params[e.N-1], e.N)
		}
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: true}
	case *Ident:
		return c.ident(e)
	case *Var:
		t := c.vars[e.Name]
		if t == nil {
			near := row.Nearest(e.Name, slices.Sorted(maps.Keys(c.vars)))
			if near != "" {
				near = ": did you mean " + near + "?"
			}
			c.failAt(e, "%s has no value here%s", e.Name, near)
		}
		return t
	case *MapRef:
		return c.readMap(e)
	case *Call:
		return c.call(e, false)
	case *Unary:
		return c.unary(e)
	case *IncDec:
		return c.incDec(e)
	case *Binary:
		return c.binary(e)
	case *Ternary:
		c.condition(e.C)
		a, b := c.value(e.X), c.value(e.Y)
		t, ok := unify(a, b)
		if !ok {
			c.failAt(e, "type conflict: one side is %s, the other %s", a, b)
		}
		return t
	case *Cast:
		return c.cast(e)
	case *Field:
		return c.field(e)
	case *Index:
		return c.index(e)
	case *Tuple:
		t := &Type{Kind: Combo}
		for _, x := range e.Elems {
			v := c.value(x)
			if v.Kind == Number {
				v = &Type{Kind: Number, Size: 8, Signed: v.Signed || v.Size < 8, Bool: v.Bool}
			}
			t.Elems = append(t.Elems, v)
		}
		return t
	case *Sizeof:
		if e.Of != nil {
			e.X = nil
			if t := c.resolve(e.Of); t.Size == 0 {
				c.failAt(e, "the size of %s is not known", t)
			}
		} else {
			c.expr(e.X)
		}
		return &Type{Kind: Number, Size: 8, Lit: true}
	case *Offsetof:
		c.offset(e)
		return &Type{Kind: Number, Size: 8, Lit: true}
	}
	panic(fmt.Sprintf("bt: no type for %T", e))
}

func (c *checker) offset(e *Offsetof) int {
	t := c.resolve(&e.Of)
	off := 0
	for name := range strings.SplitSeq(e.Field, ".") {
		if t.Kind != Record {
			c.failAt(e, "%s has no fields", t)
		}
		m := t.Rec.field(name, InKernel)
		if m == nil {
			c.failAt(e, "%s has no field %s%s", t, name, didYouMean(name, t.Rec.names()))
		}
		off, t = off+m.off, m.t
	}
	return off
}

func didYouMean(name string, names []string) string {
	if near := row.Nearest(name, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

func (c *checker) readMap(m *MapRef) *Type {
	d := c.mapKeys(m)
	if d.value == nil {
		if c.final {
			var names []string
			for n, o := range c.maps {
				if o.value != nil {
					names = append(names, n)
				}
			}
			slices.Sort(names)
			c.failAt(m, "%s is read but never assigned%s", m.Name, didYouMean(m.Name, names))
		}
		return unknown
	}
	switch d.value.Kind {
	case CountOf, SumOf, MinOf, MaxOf, AvgOf:
		if !d.read {
			d.read, c.changed = true, true
		}
		return &Type{Kind: Number, Size: 8, Signed: d.value.Signed || d.value.Kind == CountOf}
	case StatsOf, HistOf, LhistOf:
		c.failAt(m, "%s is a %s, which cannot be read in an expression", m.Name, d.value)
	}
	return d.value
}

func (c *checker) unary(e *Unary) *Type {
	t := c.expr(e.X)
	switch e.Op {
	case "*":
		switch t.Kind {
		case Pointer:
			if el := t.Elem(); el.Kind != None {
				return el
			}
			c.failAt(e, "a void * cannot be followed: cast it first")
		case Number:
			return &Type{Kind: Number, Size: 8, Space: t.Space}
		}
		c.failAt(e, "%s is no pointer", t)
	case "&":
		switch e.X.(type) {
		case *Field, *Index, *Unary:
			return pointerTo(t, t.Space)
		}
		c.failAt(e, "only a field has an address")
	case "!":
		if !t.word() {
			c.failAt(e, "! needs a number, not %s", t)
		}
		return typeBool
	}
	if !t.number() {
		c.failAt(e, "%s needs a number, not %s", e.Op, t)
	}
	if e.Op == "-" {
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: t.Lit}
	}
	return &Type{Kind: Number, Size: 8, Signed: !unsigned64(t), Lit: t.Lit}
}

func (c *checker) incDec(e *IncDec) *Type {
	if m, ok := e.X.(*MapRef); ok {
		d := c.mapKeys(m)
		if d.value == nil {
			c.setMap(m, d, typeS64)
		}
		if !d.value.number() {
			c.failAt(e, "type conflict: %s is %s since %s, and takes no %s", m.Name, d.value, c.at(d.valuePos), e.Op)
		}
		m.setType(d.value)
		return d.value
	}
	t := c.expr(e.X)
	if !t.number() {
		c.failAt(e, "%s needs a number, not %s", e.Op, t)
	}
	return t
}

// unsigned64 says whether a value makes arithmetic with it unsigned: as in C on
// 64 bits, where every narrower type fits the signed one.
func unsigned64(t *Type) bool {
	return t.Kind == Pointer || t.Kind == Number && t.Size == 8 && !t.Signed && !t.Lit
}

func (c *checker) binary(e *Binary) *Type {
	a, b := c.expr(e.X), c.expr(e.Y)
	switch e.Op {
	case "&&", "||":
		for _, x := range []Expr{e.X, e.Y} {
			if t := x.typ(); !t.word() {
				c.failAt(x, "%s needs a number, not %s", e.Op, t)
			}
		}
		return typeBool
	case "==", "!=":
		if stringish(a) && stringish(b) {
			return typeBool
		}
		if (a.Kind == Inet || a.Kind == Array || a.Kind == Mac) && a.Kind == b.Kind && a.store() == b.store() {
			return typeBool
		}
	}
	ok := func(t *Type) bool { return t.number() || t.Kind == KSym || t.Kind == Cgroup || t.Kind == User }
	if !ok(a) || !ok(b) {
		if stringish(a) != stringish(b) {
			c.failAt(e, "type conflict: %s compares %s with %s", e.Op, a, b)
		}
		c.failAt(e, "%s needs numbers, not %s and %s", e.Op, a, b)
	}
	switch e.Op {
	case "==", "!=", "<", ">", "<=", ">=":
		return typeBool
	case "+", "-":
		if a.Kind == Pointer && b.Kind == Number {
			return a
		}
		if e.Op == "+" && b.Kind == Pointer && a.Kind == Number {
			return b
		}
	}
	return &Type{Kind: Number, Size: 8, Signed: signedOp(a, b), Lit: a.Lit && b.Lit, Space: max(a.Space, b.Space)}
}

// signedOp says whether an operation on two numbers is a signed one.
func signedOp(a, b *Type) bool {
	if a.Lit && b.Lit {
		return a.Signed && b.Signed
	}
	return !unsigned64(a) && !unsigned64(b) && !(a.Lit && !a.Signed) && !(b.Lit && !b.Signed)
}

func stringish(t *Type) bool { return t.Kind == String || t.charArray() }

func (c *checker) cast(e *Cast) *Type {
	t := c.expr(e.X)
	to := c.resolve(&e.To)
	switch to.Kind {
	case Number:
		if !t.word() && !(t.Kind == Array && t.Size <= 8) {
			c.failAt(e, "%s cannot be cast to %s", t, to)
		}
		if to.Size < 1 {
			c.failAt(e, "%s cannot be cast to", to)
		}
		n := *to
		n.Space = t.Space
		return &n
	case Pointer:
		if !t.number() && t.Kind != Array && t.Kind != Record {
			c.failAt(e, "%s cannot be cast to a pointer", t)
		}
		p := *to
		p.Space = t.Space
		return &p
	case Array:
		if t.Kind == Number || t.Kind == Array {
			return to
		}
	case Record:
		if t.Kind == Record {
			return t
		}
	case String:
		if stringish(t) {
			return t
		}
	}
	c.failAt(e, "%s cannot be cast to %s", t, to)
	return nil
}

func (c *checker) field(e *Field) *Type {
	if id, ok := e.X.(*Ident); ok && id.Name == "args" {
		id.setType(typeVoid)
		return c.arg(e)
	}
	t := c.expr(e.X)
	if t == unknown {
		return unknown
	}
	if t.Kind == Combo {
		n, err := strconv.Atoi(e.Name)
		if err != nil || n >= len(t.Elems) {
			c.failAt(e, "the tuple has elements .0 to .%d", len(t.Elems)-1)
		}
		return t.Elems[n]
	}
	if t.Kind == Pointer {
		t = t.Elem()
	}
	if t.Kind != Record {
		if t.Kind == Number || t.Kind == None {
			c.failAt(e, "%s of a %s: cast it to a struct first, as ((struct sock *)x)->%s", e.Name, e.X.typ(), e.Name)
		}
		c.failAt(e, "%s has no fields", t)
	}
	m := t.Rec.field(e.Name, t.Space)
	if m == nil {
		pos, end := e.span()
		c.fail(max(pos, end-Pos(len(e.Name))), end, "%s has no field %s%s", t, e.Name, didYouMean(e.Name, t.Rec.names()))
	}
	return m.t
}

func (c *checker) index(e *Index) *Type {
	t := c.expr(e.X)
	i := c.expr(e.I)
	if t == unknown {
		return unknown
	}
	if t.Kind != Array && t.Kind != Pointer {
		c.failAt(e, "%s has no elements", t)
	}
	if !i.number() {
		c.failAt(e.I, "an index is a number, not %s", i)
	}
	el := t.Elem()
	if el.Kind == None {
		c.failAt(e, "a void * has no elements: cast it first")
	}
	if n, ok := c.constant(e.I); ok && t.Kind == Array && t.Len > 0 && (n < 0 || n >= int64(t.Len)) {
		c.failAt(e.I, "index %d is outside %s", n, t)
	}
	return el
}

// arg is args.name.
func (c *checker) arg(e *Field) *Type {
	c.uses.types = true
	t := c.target
	pos, end := e.span()
	pos = max(pos, end-Pos(len(e.Name)))
	switch {
	case t.Kind == Tracepoint:
		var names []string
		for i := range t.format {
			if f := &t.format[i]; f.name == e.Name {
				return c.fieldType(t, f)
			} else {
				names = append(names, f.name)
			}
		}
		if len(names) == 0 {
			c.fail(pos, end, "%s has no arguments", t.Probe)
		}
		c.fail(pos, end, "%s has no argument %s%s", t.Probe, e.Name, orList(e.Name, names))
	case t.Way == Kretprobe:
		c.failAt(e, "a %s by kretprobe has no args: keep them at the entry in @map[tid]", t.Kind)
	case t.Kind.function() || t.Kind == RawTracepoint:
		proto := c.proto(e)
		var names []string
		for i, p := range proto.Params {
			if p.Name == e.Name {
				if t.Way == Kprobe && i >= len(argRegs) {
					c.failAt(e, "argument %s is on the stack, where a kprobe cannot find it", e.Name)
				}
				return fromBTF(p.Type, InKernel)
			}
			names = append(names, p.Name)
		}
		if e.Name == "retval" && t.Kind.returns() {
			return fromBTF(proto.Return, InKernel)
		}
		c.fail(pos, end, "%s has no argument %s%s", t.Probe, e.Name, orList(e.Name, names))
	}
	c.failAt(e, "%s has no args", t.Kind)
	return nil
}

// orList is the nearest name, or all of them if there are few.
func orList(name string, names []string) string {
	if s := didYouMean(name, names); s != "" {
		return s
	}
	if len(names) > 0 && len(names) <= 12 {
		return " (there are " + strings.Join(names, ", ") + ")"
	}
	return ""
}

// proto is the prototype of the target, which must be known.
func (c *checker) proto(e Expr) *btf.FuncProto {
	if p := c.tryProto(); p != nil {
		return p
	}
	c.failAt(e, "%s: the types of its arguments are not known: %v", c.target.Probe, c.target.noType)
	return nil
}

func (c *checker) tryProto() *btf.FuncProto {
	t := c.target
	if t.proto == nil && t.noType == nil {
		if t.Kind == RawTracepoint {
			t.proto, t.noType = c.kernel.rawProto(t.Name)
		} else {
			t.proto, t.noType = c.kernel.proto(t.Name, t.Module)
		}
	}
	return t.proto
}
