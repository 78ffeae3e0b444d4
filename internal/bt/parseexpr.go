// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// levels are C's binary operators, loosest first.
var levels = [][]string{
	{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"},
}

func (p *parser) expr() Expr {
	defer p.deeper()()
	return p.ternaryFrom(p.binaryFrom(p.unary(), 0))
}

func (p *parser) ternaryFrom(c Expr) Expr {
	if !p.accept("?") {
		return c
	}
	short := p.accept(":")
	x := c
	if !short {
		x = p.expr()
		p.expect(":", "between the two values")
	}
	y := p.expr()
	pos, _ := c.span()
	_, end := y.span()
	if _, ok := constant(c, p.script); !short || ok {
		return &Ternary{p.node(pos, end), c, x, y}
	}
	// a ?: b is { $x = a; $x ? $x : b }: a is computed once.
	name := fmt.Sprintf("$?%d", pos) // no script can write it
	v := func() *Var { return &Var{p.node(pos, end), name} }
	return &BlockExpr{p.node(pos, end), []Stmt{&Assign{pos, end, v(), "", c}}, &Ternary{p.node(pos, end), v(), v(), y}}
}

// binaryFrom goes on after a first operand, by precedence climbing.
func (p *parser) binaryFrom(x Expr, least int) Expr {
	for {
		at := p.at
		t := p.next()
		level := levelOf(t)
		if level < least || p.pred && t.text == "/" && p.predicateEnds() {
			p.at = at
			return x
		}
		y := p.unary()
		for {
			at := p.at
			n := p.next()
			tighter := levelOf(n) > level && !(p.pred && n.text == "/" && p.predicateEnds())
			p.at = at
			if !tighter {
				break
			}
			y = p.binaryFrom(y, level+1)
		}
		pos, _ := x.span()
		_, end := y.span()
		x = &Binary{p.node(pos, end), t.text, x, y}
	}
}

// predicateEnds says whether the slash just read is the one before the brace.
func (p *parser) predicateEnds() bool {
	n := p.peek()
	return n.kind == tokPunct && n.text == "{" || n.kind == tokEOF
}

func levelOf(t token) int {
	if t.kind == tokPunct {
		for i, ops := range levels {
			for _, op := range ops {
				if op == t.text {
					return i
				}
			}
		}
	}
	return -1
}

func (p *parser) unary() Expr {
	defer p.deeper()()
	at := p.at
	t := p.next()
	if t.kind == tokPunct {
		switch t.text {
		case "-", "!", "~", "*", "&", "+":
			x := p.unary()
			_, end := x.span()
			if n, ok := x.(*Int); ok && t.text == "-" && n.Name == "" && !n.U64 {
				return &Int{node: p.node(t.pos, end), V: -n.V}
			}
			if t.text == "+" {
				return x
			}
			return &Unary{p.node(t.pos, end), t.text, x}
		case "++", "--":
			x := p.unary()
			_, end := x.span()
			p.assignable(x)
			return &IncDec{p.node(t.pos, end), t.text, true, x}
		case "(":
			if n, ok := p.castType(); ok {
				x := p.unary()
				_, end := x.span()
				return &Cast{p.node(t.pos, end), n, x}
			}
		}
	}
	p.at = at
	return p.postfix(p.primary())
}

func (p *parser) assignable(x Expr) {
	switch x.(type) {
	case *Var, *MapRef:
		return
	}
	pos, end := x.span()
	p.fail(pos, end, "only a $variable or a @map can be changed")
}

func (p *parser) postfix(x Expr) Expr {
	for rounds := 0; ; rounds++ {
		if rounds > maxDepth { // each makes the tree deeper
			p.fail(Pos(p.at), Pos(p.at), "nested too deeply")
		}
		pos, _ := x.span()
		at := p.at
		t := p.next()
		if t.kind != tokPunct {
			p.at = at
			return x
		}
		switch t.text {
		case "->", ".":
			name := p.next()
			if name.kind != tokIdent && !(name.kind == tokInt && t.text == ".") {
				p.fail(name.pos, name.end, "expected a field's name after '%s', found %s", t.text, name)
			}
			x = &Field{node: p.node(pos, name.end), X: x, Name: name.text, Arrow: t.text == "->"}
		case "[":
			i := p.expr()
			end := p.expect("]", "after the index").end
			x = &Index{p.node(pos, end), x, i}
		case "++", "--":
			p.assignable(x)
			x = &IncDec{p.node(pos, t.end), t.text, false, x}
		default:
			p.at = at
			return x
		}
	}
}

func (p *parser) primary() Expr {
	t := p.next()
	switch t.kind {
	case tokInt:
		v, ok := number(t.text)
		if !ok {
			p.fail(t.pos, t.end, "%s is not a number", t.text)
		}
		return &Int{node: p.node(t.pos, t.end), V: int64(v), U64: v > math.MaxInt64}
	case tokStr:
		v, end := t.text, t.end
		for p.peek().kind == tokStr { // "a" "b" is "ab"
			n := p.next()
			v, end = v+n.text, n.end
		}
		return &Str{p.node(t.pos, end), v}
	case tokParam:
		n := -1
		if t.text != "$#" {
			var err error
			if n, err = strconv.Atoi(t.text[1:]); err != nil || n > 1000 {
				p.fail(t.pos, t.end, "%s is neither a variable nor an argument", t.text)
			}
		}
		return &Param{node: p.node(t.pos, t.end), N: n}
	case tokVar:
		if p.bcc != nil {
			return p.bcc.ident(p, t, t.text)
		}
		return &Var{p.node(t.pos, t.end), t.text}
	case tokMap:
		m := &MapRef{node: p.node(t.pos, t.end), Name: t.text}
		if p.accept("[") {
			m.Keys = p.list("]", "between keys")
			m.end = Pos(p.at)
			if p.fixed != nil {
				m.end = p.fixed.end
			}
			if len(m.Keys) == 0 {
				p.fail(t.pos, Pos(p.at), "%s[] needs a key", t.text)
			}
		}
		return m
	case tokIdent:
		return p.word(t)
	}
	switch {
	case t.text == "(":
		return p.tuple(t)
	case t.text == "{" && t.kind == tokPunct:
		pred := p.pred
		p.pred = false
		defer func() { p.pred = pred }()
		return p.blockExpr(t)
	}
	p.fail(t.pos, t.end, "expected an expression, found %s", t)
	return nil
}

// tuple is what begins with a parenthesis: (x), (a, b), (a,), () and (name=a, …).
func (p *parser) tuple(open token) Expr {
	e := &Tuple{Elems: []Expr{}}
	pred := p.pred
	p.pred = false
	defer func() { p.pred = pred }()
	if p.is(")") {
		e.node = p.node(open.pos, p.next().end)
		return e
	}
	for {
		at := p.at
		if name := p.next(); name.kind == tokIdent && p.accept("=") {
			if len(e.Names) < len(e.Elems) {
				p.fail(name.pos, name.end, "all elements have names, or none has")
			}
			if slices.Contains(e.Names, name.text) {
				p.fail(name.pos, name.end, "there is a field %s already", name.text)
			}
			e.Names = append(e.Names, name.text)
		} else if p.at = at; e.Names != nil {
			t := p.peek()
			p.fail(t.pos, t.end, "all elements have names, or none has")
		}
		x := p.expr()
		if len(e.Elems) == 0 && e.Names == nil && p.accept(")") {
			return x
		}
		e.Elems = append(e.Elems, x)
		if comma := p.accept(","); !comma || p.is(")") {
			e.node = p.node(open.pos, p.expect(")", "after the tuple").end)
			return e
		}
	}
}

// list is expressions between commas, up to and with the closing token.
func (p *parser) list(end, what string) (xs []Expr) {
	if p.accept(end) {
		return nil
	}
	pred := p.pred
	defer func() { p.pred = pred }()
	for {
		xs = append(xs, p.expr())
		if p.accept(end) {
			return xs
		}
		t := p.next()
		if t.kind != tokPunct || t.text != "," {
			p.fail(t.pos, t.end, "expected ',' or '%s' %s, found %s", end, what, t)
		}
		if p.accept(end) {
			return xs
		}
	}
}

// typeArg is the type in typeinfo(type), nil if it is an expression.
func (p *parser) typeArg(function string) Expr {
	if function != "typeinfo" {
		return nil
	}
	at := p.peek()
	n, ok := p.castType()
	if !ok {
		return nil
	}
	return &TypeExpr{p.node(at.pos, at.end), n}
}

func (p *parser) word(t token) Expr {
	switch t.text {
	case "sizeof":
		p.expect("(", "after sizeof")
		s := &Sizeof{node: p.node(t.pos, t.end)}
		if n, ok := p.castType(); ok {
			s.Of = &n
			return s
		}
		s.X = p.expr()
		p.expect(")", "after sizeof(…")
		return s
	case "offsetof":
		p.expect("(", "after offsetof")
		o := &Offsetof{node: p.node(t.pos, t.end)}
		if n := p.peek(); n.kind == tokVar || n.kind == tokMap || n.kind == tokPunct { // of an expression
			o.Of = TypeName{pos: n.pos, end: n.end, Of: p.expr()}
		} else {
			o.Of = p.typeName()
		}
		p.expect(",", "after the type")
		for {
			f := p.next()
			if f.kind != tokIdent {
				p.fail(f.pos, f.end, "expected a field's name, found %s", f)
			}
			o.Field += f.text
			if !p.accept(".") {
				break
			}
			o.Field += "."
		}
		p.expect(")", "after the field")
		return o
	case "true", "false":
		v := int64(0)
		if t.text == "true" {
			v = 1
		}
		return &Int{node: p.node(t.pos, t.end), V: v, Bool: true}
	}
	if d, ok := p.defines[t.text]; ok && !p.busy[t.text] {
		return p.macro(t, d)
	}
	if _, is := builtins[t.text]; is && p.bcc == nil { // pid() is pid
		at := p.at
		if p.accept("(") && p.accept(")") {
			return &Ident{p.node(t.pos, t.end), t.text}
		}
		p.at = at
	}
	if p.accept("(") {
		c := &Call{node: p.node(t.pos, t.end), Name: t.text}
		if of := p.typeArg(t.text); of != nil {
			c.Args = []Expr{of}
		} else {
			c.Args = p.list(")", "between arguments")
		}
		if p.fixed == nil {
			c.end = Pos(p.at)
		}
		if p.bcc != nil {
			return p.bcc.call(p, c)
		}
		return c
	}
	if p.bcc != nil {
		return p.bcc.ident(p, t, t.text)
	}
	return &Ident{p.node(t.pos, t.end), t.text}
}

// macro parses the text of a #define in place of its name.
func (p *parser) macro(t token, d define) Expr {
	if strings.TrimSpace(d.text) == "" {
		p.fail(t.pos, t.end, "%s is defined as nothing", t.text)
	}
	fixed := p.fixed
	if fixed == nil {
		fixed = &t
	}
	busy := map[string]bool{t.text: true}
	for k := range p.busy {
		busy[k] = true
	}
	sub := &parser{
		src: p.src, text: d.text, defines: p.defines, script: p.script,
		depth: p.depth, nodes: p.nodes, busy: busy, fixed: fixed, bcc: p.bcc,
	}
	x := sub.expr()
	p.nodes = sub.nodes
	if n := sub.next(); n.kind != tokEOF {
		p.fail(t.pos, t.end, "%s is defined as %q, which is not an expression", t.text, d.text)
	}
	return x
}
