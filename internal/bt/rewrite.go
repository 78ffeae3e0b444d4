// SPDX-License-Identifier: Apache-2.0

package bt

// A rewriter copies trees. If replace gives a tree for a node, that tree takes the node's place,
// and the node's children are not visited.
type rewriter struct {
	replace func(Expr) (Expr, bool)
}

func (r *rewriter) clause(c *Clause) *Clause {
	n := &Clause{Points: c.Points, Body: r.stmts(c.Body)}
	if c.Pred != nil {
		n.Pred = r.expr(c.Pred)
	}
	return n
}

func (r *rewriter) stmts(list []Stmt) []Stmt {
	out := make([]Stmt, 0, len(list))
	for _, s := range list {
		out = append(out, r.stmt(s))
	}
	return out
}

func (r *rewriter) stmt(s Stmt) Stmt {
	switch s := s.(type) {
	case *ExprStmt:
		return &ExprStmt{r.expr(s.X)}
	case *Assign:
		n := *s
		n.Target, n.Value = r.expr(s.Target), r.expr(s.Value)
		return &n
	case *Let:
		n := &Let{Var: r.expr(s.Var).(*Var), As: r.typeName(s.As)}
		if s.Value != nil {
			n.Value = r.expr(s.Value)
		}
		return n
	case *If:
		return &If{s.comptime, r.expr(s.Cond), r.stmts(s.Then), r.stmts(s.Else)}
	case *Unroll:
		n := *s
		n.N, n.Body = r.expr(s.N), r.stmts(s.Body)
		return &n
	case *While:
		return &While{Cond: r.expr(s.Cond), Body: r.stmts(s.Body), few: s.few}
	case *For:
		n := *s
		n.Var, n.Map, n.Body = r.expr(s.Var).(*Var), r.expr(s.Map).(*MapRef), r.stmts(s.Body)
		return &n
	case *Block:
		return &Block{r.stmts(s.Body)}
	case *Jump:
		n := *s
		if s.X != nil {
			n.X = r.expr(s.X)
		}
		return &n
	}
	return s
}

func (r *rewriter) typeName(t *TypeName) *TypeName {
	if t == nil {
		return nil
	}
	n := *t
	if t.Of != nil {
		n.Of = r.expr(t.Of)
	}
	return &n
}

func (r *rewriter) exprs(list []Expr) []Expr {
	if list == nil {
		return nil
	}
	out := make([]Expr, 0, len(list))
	for _, x := range list {
		out = append(out, r.expr(x))
	}
	return out
}

func (r *rewriter) expr(x Expr) Expr {
	if n, ok := r.replace(x); ok {
		return n
	}
	switch x := x.(type) {
	case *Int:
		n := *x
		return &n
	case *Str:
		n := *x
		return &n
	case *Ident:
		n := *x
		return &n
	case *Var:
		n := *x
		return &n
	case *Param:
		n := *x
		return &n
	case *MapRef:
		n := *x
		n.Keys = r.exprs(x.Keys)
		return &n
	case *Call:
		n := *x
		n.Args = r.exprs(x.Args)
		return &n
	case *Unary:
		n := *x
		n.X = r.expr(x.X)
		return &n
	case *IncDec:
		n := *x
		n.X = r.expr(x.X)
		return &n
	case *Binary:
		n := *x
		n.X, n.Y = r.expr(x.X), r.expr(x.Y)
		return &n
	case *Ternary:
		n := *x
		n.C, n.X, n.Y = r.expr(x.C), r.expr(x.X), r.expr(x.Y)
		return &n
	case *Cast:
		n := *x
		n.To, n.X = *r.typeName(&x.To), r.expr(x.X)
		return &n
	case *Field:
		n := *x
		n.X = r.expr(x.X)
		return &n
	case *Index:
		n := *x
		n.X, n.I = r.expr(x.X), r.expr(x.I)
		return &n
	case *Tuple:
		n := *x
		n.Elems = r.exprs(x.Elems)
		return &n
	case *BlockExpr:
		n := *x
		n.Body = r.stmts(x.Body)
		if x.X != nil {
			n.X = r.expr(x.X)
		}
		return &n
	case *Sizeof:
		n := *x
		n.Of = r.typeName(x.Of)
		if x.X != nil {
			n.X = r.expr(x.X)
		}
		return &n
	case *TypeExpr:
		n := *x
		n.Of = *r.typeName(&x.Of)
		return &n
	case *Offsetof:
		n := *x
		n.Of = *r.typeName(&x.Of)
		return &n
	}
	return x
}
