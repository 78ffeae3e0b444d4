// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"
)

// A macro is macro name($a, b, @c) { … }: a tree that stands in place of its calls.
// It sees no variable and no map but those it is given.
type macro struct {
	pos, end Pos
	name     string
	params   []string // $a: a variable, @c: a map, b: an expression
	body     *BlockExpr
}

// maxMacros bounds how deep calls of macros can be inside of one another.
const maxMacros = 32

// macroDecl reads a macro.
func (p *parser) macroDecl() {
	p.next()
	name := p.next()
	if name.kind != tokIdent {
		p.fail(name.pos, name.end, "expected the name of a macro, found %s", name)
	}
	m := &macro{pos: name.pos, end: name.end, name: name.text}
	p.expect("(", "after macro "+name.text)
	for !p.accept(")") {
		t := p.next()
		if t.kind != tokVar && t.kind != tokMap && t.kind != tokIdent {
			p.fail(t.pos, t.end, "a parameter of a macro is a name, a $variable or a @map, not %s", t)
		}
		m.params = append(m.params, t.text)
		if !p.accept(",") && !p.is(")") {
			t := p.peek()
			p.fail(t.pos, t.end, "expected ',' or ')' between parameters, found %s", t)
		}
	}
	open := p.expect("{", "after the parameters")
	m.body = p.blockExpr(open)
	for _, o := range p.script.macros[m.name] {
		if o.kinds() == m.kinds() {
			p.fail(m.pos, m.end, "macro %s is there already, %s", m.name, p.src.where(o.pos))
		}
	}
	if p.script.macros == nil {
		p.script.macros = map[string][]*macro{}
	}
	p.script.macros[m.name] = append(p.script.macros[m.name], m)
}

// kinds is what macros of one name are told apart by.
func (m *macro) kinds() string {
	s := ""
	for _, p := range m.params {
		if p[0] != '$' && p[0] != '@' {
			p = "x"
		}
		s += p[:1]
	}
	return s
}

// expand puts the bodies of macros in place of their calls.
func (s *Script) expand() (err error) {
	defer catch(&err)
	x := &expansion{s: s}
	for i, c := range s.Clauses {
		s.Clauses[i] = x.rewriter(nil).clause(c)
	}
	return nil
}

type expansion struct {
	s      *Script
	n      int // calls so far
	inside []*macro
	nodes  int
}

func (x *expansion) fail(e Expr, format string, args ...any) {
	pos, end := e.span()
	panic(&Error{Src: x.s.Src, Pos: pos, End: end, Msg: fmt.Sprintf(format, args...)})
}

// rewriter copies a tree, with given expressions in place of names.
func (x *expansion) rewriter(given func(Expr) (Expr, bool)) *rewriter {
	r := &rewriter{}
	r.replace = func(e Expr) (Expr, bool) {
		x.count(e)
		if given != nil {
			if n, ok := given(e); ok {
				return n, true
			}
		}
		switch e := e.(type) {
		case *Ident:
			if len(x.s.macros[e.Name]) > 0 && x.find(e.Name, nil) != nil {
				return x.call(e, x.find(e.Name, nil), nil), true
			}
			return x.fromLibrary(e, e.Name, nil, false)
		case *Call:
			list := x.s.macros[e.Name]
			if len(list) == 0 {
				if _, ok := library[e.Name]; ok {
					return x.fromLibrary(e, e.Name, r.exprs(e.Args), true)
				}
			}
			if len(list) == 0 || len(x.inside) > 0 && x.inside[len(x.inside)-1].name == e.Name && functions[e.Name].typ != nil {
				return nil, false // of its own name: the function that is there besides
			}
			m := x.find(e.Name, e.Args)
			if m == nil {
				x.mismatch(e, list)
			}
			return x.call(e, m, r.exprs(e.Args)), true
		}
		return nil, false
	}
	return r
}

// count bounds what calls inside of one another can make.
func (x *expansion) count(e Expr) {
	if x.nodes++; x.nodes > maxNodes {
		x.fail(e, "the program is too large")
	}
}

// find is the macro of a name that takes these arguments.
func (x *expansion) find(name string, args []Expr) *macro {
next:
	for _, m := range x.s.macros[name] {
		if len(m.params) != len(args) {
			continue
		}
		for i, p := range m.params {
			switch a := args[i].(type) {
			case *Var:
				if p[0] == '@' {
					continue next
				}
			case *MapRef:
				if p[0] == '$' || p[0] == '@' && a.Keys != nil {
					continue next
				}
			default:
				if p[0] == '$' || p[0] == '@' {
					continue next
				}
			}
		}
		return m
	}
	return nil
}

func (x *expansion) mismatch(e *Call, list []*macro) {
	if _, ok := functions[e.Name]; ok {
		return
	}
	m := list[0]
	if len(m.params) != len(e.Args) {
		x.fail(e, "macro %s takes %s, not %d", e.Name, plural(len(m.params), "argument"), len(e.Args))
	}
	for i, p := range m.params {
		switch a := e.Args[i].(type) {
		case *Var:
			if p[0] != '@' {
				continue
			}
		case *MapRef:
			if p[0] != '$' && (p[0] != '@' || a.Keys == nil) {
				continue
			}
		default:
			if p[0] != '$' && p[0] != '@' {
				continue
			}
		}
		what := "a $variable"
		if p[0] == '@' {
			what = "a whole @map"
		}
		x.fail(e.Args[i], "macro %s takes %s for %s", e.Name, what, p)
	}
	x.fail(e, "macro %s does not take these arguments", e.Name)
}

// call is the body of a macro for arguments. Its own variables get names that no
// other call has.
func (x *expansion) call(e Expr, m *macro, args []Expr) Expr {
	if len(x.inside) >= maxMacros {
		x.fail(e, "macro %s calls itself without end", m.name)
	}
	pos, end := e.span()
	x.s.uses = append(x.s.uses, unstableUse{pos, end, "unstable_macro"})
	x.n++
	mark := fmt.Sprintf("%s%d", hidden, x.n)
	x.inside = append(x.inside, m)
	defer func() { x.inside = x.inside[:len(x.inside)-1] }()
	given := map[string]Expr{}
	for i, p := range m.params {
		given[p] = args[i]
	}
	copyOf := &rewriter{replace: func(n Expr) (Expr, bool) { x.count(n); return nil, false }}
	var r *rewriter
	r = x.rewriter(func(n Expr) (Expr, bool) {
		switch n := n.(type) {
		case *Ident:
			if a, ok := given[n.Name]; ok {
				return copyOf.expr(a), true
			}
		case *Var:
			if a, ok := given[n.Name]; ok {
				return copyOf.expr(a), true
			}
			v := *n
			v.Name += mark
			return &v, true
		case *MapRef:
			a, ok := given[n.Name].(*MapRef)
			if !ok {
				x.fail(n, "macro %s uses %s, which is not one of its parameters", m.name, n.Name)
			}
			k := *n
			k.Name, k.Keys = a.Name, r.exprs(n.Keys)
			return &k, true
		}
		return nil, false
	})
	b := r.expr(m.body).(*BlockExpr)
	if len(b.Body) == 0 && b.X != nil {
		return b.X
	}
	return b
}

// hidden parts the name of a variable from what tells it from others of that name.
const hidden = "\x01"

// shown is a text without what is hidden in the names of variables.
func shown(s string) string {
	if !strings.Contains(s, hidden) {
		return s
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, hidden)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = strings.TrimLeft(after, "0123456789")
	}
}
