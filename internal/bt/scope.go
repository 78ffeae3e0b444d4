// SPDX-License-Identifier: Apache-2.0

package bt

import "strconv"

// A variable lives in the block that first assigns it, and in the blocks inside it. Older scripts
// also read it after the block: then all variables of that name whose blocks have ended are one
// variable.
type scopes struct {
	open  []map[string]*local
	ended map[string][]*local
	count map[string]int
	uses  []use
}

type local struct {
	name string
	same *local // it is the same as this one
}

func (v *local) root() *local {
	for v.same != nil {
		v = v.same
	}
	return v
}

type use struct {
	at *Var
	v  *local
}

// scope tells variables of one name in different blocks apart.
func (s *Script) scope() {
	for _, c := range s.Clauses {
		x := &scopes{ended: map[string][]*local{}, count: map[string]int{}}
		x.enter()
		if c.Pred != nil {
			x.expr(c.Pred)
		}
		x.stmts(c.Body)
		x.leave()
		for _, u := range x.uses {
			u.at.Name = u.v.root().name
		}
	}
}

func (x *scopes) enter() { x.open = append(x.open, map[string]*local{}) }

func (x *scopes) leave() {
	last := x.open[len(x.open)-1]
	x.open = x.open[:len(x.open)-1]
	for name, v := range last {
		x.ended[name] = append(x.ended[name], v)
	}
}

func (x *scopes) block(list []Stmt) {
	x.enter()
	x.stmts(list)
	x.leave()
}

func (x *scopes) visible(name string) *local {
	for i := len(x.open) - 1; i >= 0; i-- {
		if v := x.open[i][name]; v != nil {
			return v
		}
	}
	return nil
}

// declare is a variable that the block has from here on.
func (x *scopes) declare(at *Var) {
	v := x.visible(at.Name)
	if v == nil {
		v = &local{name: at.Name}
		if x.count[at.Name]++; x.count[at.Name] > 1 {
			v.name += hidden + "0" + strconv.Itoa(x.count[at.Name]) // macros' have no 0 there
		}
		x.open[len(x.open)-1][at.Name] = v
	}
	x.uses = append(x.uses, use{at, v})
}

// read is a variable that should be there.
func (x *scopes) read(at *Var) {
	v := x.visible(at.Name)
	if v == nil {
		old := x.ended[at.Name]
		if len(old) == 0 {
			return // the checker says so
		}
		v = old[0].root()
		for _, o := range old[1:] {
			if o = o.root(); o != v {
				o.same = v
			}
		}
		x.open[0][at.Name] = v // it is the clause's
	}
	x.uses = append(x.uses, use{at, v})
}

func (x *scopes) stmts(list []Stmt) {
	for _, s := range list {
		x.stmt(s)
	}
}

func (x *scopes) stmt(s Stmt) {
	switch s := s.(type) {
	case *ExprStmt:
		x.expr(s.X)
	case *Assign:
		x.expr(s.Value)
		if v, ok := s.Target.(*Var); ok && s.Op == "" {
			x.declare(v)
		} else {
			x.expr(s.Target)
		}
	case *Let:
		x.typeName(s.As)
		if s.Value != nil {
			x.expr(s.Value)
		}
		x.declare(s.Var)
	case *If:
		x.expr(s.Cond)
		x.block(s.Then)
		x.block(s.Else)
	case *Unroll:
		x.expr(s.N)
		x.block(s.Body)
	case *While:
		x.expr(s.Cond)
		x.block(s.Body)
	case *For:
		x.expr(s.Map)
		x.enter()
		x.declare(s.Var)
		x.stmts(s.Body)
		x.leave()
	case *Block:
		x.block(s.Body)
	case *Jump:
		if s.X != nil {
			x.expr(s.X)
		}
	}
}

func (x *scopes) typeName(t *TypeName) {
	if t != nil && t.Of != nil {
		x.expr(t.Of)
	}
}

func (x *scopes) exprs(list []Expr) {
	for _, e := range list {
		x.expr(e)
	}
}

func (x *scopes) expr(e Expr) {
	switch e := e.(type) {
	case *Var:
		x.read(e)
	case *MapRef:
		x.exprs(e.Keys)
	case *Call:
		x.exprs(e.Args)
	case *Unary:
		x.expr(e.X)
	case *IncDec:
		x.expr(e.X)
	case *Binary:
		x.expr(e.X)
		x.expr(e.Y)
	case *Ternary:
		x.expr(e.C)
		x.expr(e.X)
		x.expr(e.Y)
	case *Cast:
		x.typeName(&e.To)
		x.expr(e.X)
	case *Field:
		x.expr(e.X)
	case *Index:
		x.expr(e.X)
		x.expr(e.I)
	case *Tuple:
		x.exprs(e.Elems)
	case *BlockExpr:
		x.enter()
		x.stmts(e.Body)
		if e.X != nil {
			x.expr(e.X)
		}
		x.leave()
	case *Sizeof:
		x.typeName(e.Of)
		if e.X != nil {
			x.expr(e.X)
		}
	case *TypeExpr:
		x.typeName(&e.Of)
	case *Offsetof:
		x.typeName(&e.Of)
	}
}
