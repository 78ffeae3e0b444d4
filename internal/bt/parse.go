// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxDepth bounds the nesting of expressions and statements, so that no input
// exhausts the stack.
const maxDepth = 200

// maxNodes bounds what macros can make of a short text.
const maxNodes = 200_000

type parser struct {
	src     *Source
	text    string
	at      int
	defines map[string]define
	script  *Script

	depth, nodes int
	pred         bool            // inside /predicate/
	busy         map[string]bool // macros being expanded
	fixed        *token          // every position is this one: inside a #define
	errs         []error
	semicolon    bool        // the last statement ended with one
	uses         [][2]string // which file imports which
	bcc          *bccNames   // names of BCC's specs; nil in scripts
}

// Parse reads a program.
func Parse(src *Source) (*Script, error) { return parse(src, nil) }

// parse reads headers first, then the script.
func parse(src *Source, headers []string) (s *Script, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			s, err = nil, e
		}
	}()
	pre, err := preprocess(src)
	if err != nil {
		return nil, err
	}
	s = newScript(src)
	s.Includes = pre.includes
	p := &parser{src: src, text: pre.text, defines: pre.defines, script: s, busy: map[string]bool{}}
	p.headers(headers)
	p.program()
	if len(p.errs) > 0 {
		return nil, joined(p.errs)
	}
	p.order()
	if err := s.expand(); err != nil {
		return nil, err
	}
	s.scope()
	return s, nil
}

func newScript(src *Source) *Script {
	return &Script{
		Src: src, structs: map[string]*cstruct{},
		enums: map[string]int64{}, enumIn: map[string]*enum{}, enumTags: map[string]*enum{}, decls: map[string]mapDecl{}, ctypes: map[string]TypeName{},
	}
}

func (p *parser) fail(pos, end Pos, format string, args ...any) {
	if p.fixed != nil {
		pos, end = p.fixed.pos, p.fixed.end
	}
	panic(&Error{Src: p.src, Pos: pos, End: end, Msg: fmt.Sprintf(format, args...)})
}

func (p *parser) peek() token {
	at := p.at
	t := p.next()
	p.at = at
	return t
}

func (p *parser) is(text string) bool {
	t := p.peek()
	return (t.kind == tokPunct || t.kind == tokIdent) && t.text == text
}

func (p *parser) accept(text string) bool {
	at := p.at
	if t := p.next(); (t.kind == tokPunct || t.kind == tokIdent) && t.text == text {
		return true
	}
	p.at = at
	return false
}

func (p *parser) expect(text, after string) token {
	t := p.next()
	if (t.kind != tokPunct && t.kind != tokIdent) || t.text != text {
		p.fail(t.pos, t.end, "expected '%s' %s, found %s", text, after, t)
	}
	return t
}

func (p *parser) deeper() func() {
	p.depth++
	if p.depth > maxDepth {
		p.fail(Pos(p.at), Pos(p.at), "nested too deeply")
	}
	return func() { p.depth-- }
}

func (p *parser) node(pos, end Pos) node {
	p.nodes++
	if p.nodes > maxNodes {
		p.fail(pos, end, "the program is too large")
	}
	if p.fixed != nil {
		pos, end = p.fixed.pos, p.fixed.end
	}
	return node{pos: pos, end: end}
}

// program is declarations, then clauses.
func (p *parser) program() {
	for {
		t := p.peek()
		switch {
		case t.kind == tokEOF:
			if len(p.script.Clauses) == 0 && len(p.errs) == 0 {
				p.fail(t.pos, t.end, "the program has no probe")
			}
			return
		case t.kind == tokPunct && t.text == ";":
			p.next()
		case t.kind == tokIdent && (t.text == "struct" || t.text == "union" || t.text == "enum" || t.text == "typedef"):
			p.declaration()
		case t.kind == tokIdent && t.text == "config" && p.config():
		case t.kind == tokIdent && t.text == "macro":
			p.macroDecl()
		case t.kind == tokIdent && t.text == "import":
			p.importDecl()
		case t.kind == tokIdent && t.text == "fn":
			p.fail(t.pos, t.end, "%s is not supported: write a macro", t.text)
		case t.kind == tokIdent && t.text == "let":
			p.mapDecl()
		case t.kind == tokMap:
			p.fail(t.pos, t.end, "a map is declared as let %s = hash(100), or used in a probe", t.text)
		default:
			if !p.tried(p.clause) {
				return
			}
		}
	}
}

// tried reads a part of the program. What is wrong with it is kept, and what it is
// made of passed over, up to the brace that ends it; ok is whether there is one.
func (p *parser) tried(read func()) (ok bool) {
	start, depth := p.at, p.depth
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		e, is := r.(*Error)
		if !is {
			panic(r)
		}
		p.errs = append(p.errs, e)
		p.at, p.depth, p.pred = start, depth, false
		ok = len(p.errs) < maxErrors && p.skip()
	}()
	read()
	return true
}

// skip goes to behind the brace that ends what is here.
func (p *parser) skip() (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(*Error); !is {
				panic(r)
			}
			ok = false
		}
	}()
	for open := 0; ; {
		switch t := p.next(); {
		case t.kind == tokEOF:
			return false
		case t.kind != tokPunct:
		case t.text == "{":
			open++
		case t.text == "}":
			if open--; open <= 0 {
				return true
			}
		}
	}
}

// mapDecl is let @name = lruhash(100).
func (p *parser) mapDecl() {
	p.next()
	name := p.next()
	if name.kind != tokMap {
		p.fail(name.pos, name.end, "outside probes let declares @maps, not %s", name)
	}
	p.expect("=", "after "+name.text)
	kind := p.next()
	types := slices.Sorted(maps.Keys(mapKinds))
	if !slices.Contains(types, kind.text) {
		p.fail(kind.pos, kind.end, "a map is one of %s, not %s%s", strings.Join(types, ", "), kind, didYouMean(kind.text, types))
	}
	p.expect("(", "after "+kind.text)
	x := p.expr()
	n, ok := constant(x, p.script)
	if pos, end := x.span(); !ok || n < 1 || n > 10_000_000 {
		p.fail(pos, end, "a map has from 1 to 10000000 keys")
	}
	p.expect(")", "after the number of keys")
	p.accept(";")
	if old, ok := p.script.decls[name.text]; ok {
		line, col := p.src.Position(old.pos)
		p.fail(name.pos, name.end, "%s is declared already, at line %d, column %d", name.text, line, col)
	}
	p.script.decls[name.text] = mapDecl{name.pos, name.end, kind.text, int(n)}
}

// config is config = { key = value; … }.
func (p *parser) config() bool {
	at := p.at
	p.next()
	if !p.accept("=") {
		p.at = at
		return false
	}
	p.expect("{", "after 'config ='")
	for !p.accept("}") {
		if p.accept(";") || p.accept(",") {
			continue
		}
		key := p.next()
		if key.kind != tokIdent {
			p.fail(key.pos, key.end, "expected the name of a setting, found %s", key)
		}
		p.expect("=", "after "+key.text)
		value := p.next()
		if value.kind != tokInt && value.kind != tokIdent && value.kind != tokStr {
			p.fail(value.pos, value.end, "expected a value for %s, found %s", key.text, value)
		}
		p.script.Config = append(p.script.Config, setting{key.pos, value.end, key.text, value.text})
	}
	return true
}

// clause is attach points, /predicate/ and { body }.
func (p *parser) clause() {
	c := &Clause{Points: p.points()}
	if p.accept("/") {
		p.pred = true
		c.Pred = p.expr()
		p.pred = false
		p.expect("/", "at the end of the predicate")
	}
	c.Body = p.block("after the probe")
	p.script.Clauses = append(p.script.Clauses, c)
}

// probeName passes over the name that a probe may have, as name=kprobe:f. Nothing refers to it.
func (p *parser) probeName() {
	at := p.at
	for at < len(p.text) && (isLetter(p.text[at]) || at > p.at && isDigit(p.text[at])) {
		at++
	}
	if at > p.at && at < len(p.text) && p.text[at] == '=' {
		p.at = at + 1
	}
}

// points are raw text, since paths and offsets are no tokens. A list ends at
// the brace or at a slash that begins a predicate.
func (p *parser) points() (list []AttachPoint) {
	for {
		p.space()
		p.probeName()
		start, end := p.at, -1
		for p.at < len(p.text) {
			c := p.text[p.at]
			if c == '{' || c == ',' && !strings.HasPrefix(p.text[p.at:], ",\"") {
				break
			}
			if c == '/' && !pathStarted(p.text[start:p.at]) {
				break
			}
			if c == '"' {
				p.str()
				continue
			}
			if isSpace(c) {
				// Blanks end the point, unless a colon joins what follows.
				end = p.at
				p.space()
				if p.at < len(p.text) && p.text[p.at] != '{' && p.text[p.at] != '/' && p.text[p.at] != ',' {
					t := p.peek()
					p.fail(t.pos, t.end, "expected '{', a predicate or ',' after the probe %s, found %s",
						strings.TrimSpace(p.text[start:end]), t)
				}
				break
			}
			if strings.ContainsRune("}();=&|<>\\", rune(c)) || c < ' ' {
				p.fail(Pos(p.at), Pos(p.at+1), "%q cannot be part of a probe: write PROBE /predicate/ { actions }", c)
			}
			p.at++
		}
		if end < 0 {
			end = p.at
		}
		raw := strings.TrimSpace(p.text[start:end])
		if raw == "" {
			t := p.peek()
			p.fail(t.pos, t.end, "expected a probe, found %s", t)
		}
		list = append(list, AttachPoint{pos: Pos(start), end: Pos(start + len(raw)), Raw: raw})
		p.space()
		if p.at < len(p.text) && p.text[p.at] == ',' {
			p.at++
			continue
		}
		return list
	}
}

// pathStarted says whether the text of a point so far is that of a user function,
// whose path and name may have slashes.
func pathStarted(s string) bool {
	kind, _, ok := strings.Cut(s, ":")
	k, known := kindNames[kind]
	return ok && known && (k.user() || k == Iter)
}

func (p *parser) block(after string) []Stmt {
	defer p.deeper()()
	open := p.expect("{", after)
	stmts := []Stmt{}
	for {
		t := p.peek()
		switch {
		case t.kind == tokEOF:
			p.fail(open.pos, open.end, "'{' without '}'")
		case t.kind == tokPunct && t.text == "}":
			p.next()
			return stmts
		case t.kind == tokPunct && t.text == ";":
			p.next()
		default:
			stmts = append(stmts, p.stmt())
		}
	}
}

func (p *parser) stmt() Stmt {
	t := p.peek()
	if t.kind == tokPunct && t.text == "{" {
		return &Block{p.block("")}
	}
	if t.kind == tokIdent {
		switch t.text {
		case "if":
			p.next()
			return p.ifStmt()
		case "unroll":
			p.next()
			n := p.expr()
			return &Unroll{t.pos, t.end, n, p.block("after unroll and its number")}
		case "while":
			p.next()
			cond := p.expr()
			return &While{Cond: cond, Body: p.block("after while and its condition")}
		case "for":
			p.next()
			return p.forStmt(t)
		case "let":
			p.next()
			return p.let()
		case "return", "break", "continue":
			p.next()
			j := &Jump{pos: t.pos, end: t.end, Word: t.text}
			if t.text == "return" && !p.is(";") && !p.is("}") {
				j.X = p.expr()
			}
			p.end()
			return j
		}
	}
	if t.kind == tokIdent && t.text == "_" { // _ = x: what it gives is not needed
		at := p.at
		p.next()
		if eq := p.peek(); eq.kind == tokPunct && eq.text == "=" {
			p.next()
			unused := &Var{p.node(t.pos, t.end), fmt.Sprintf("$_ %d", t.pos)} // no script can write it
			v := p.expr()
			p.end()
			return &Assign{eq.pos, eq.end, unused, "", v}
		}
		p.at = at
	}
	x := p.unary()
	op := p.peek()
	if op.kind == tokPunct && strings.HasSuffix(op.text, "=") && !strings.ContainsAny(op.text[:1], "!<>=") || op.text == "=" || op.text == "<<=" || op.text == ">>=" {
		p.next()
		switch x.(type) {
		case *Var, *MapRef:
		default:
			pos, end := x.span()
			p.fail(pos, end, "only a $variable or a @map can be assigned to")
		}
		v := p.expr()
		p.end()
		return &Assign{op.pos, op.end, x, strings.TrimSuffix(op.text, "="), v}
	}
	x = p.binaryFrom(x, 0)
	x = p.ternaryFrom(x)
	p.end()
	return &ExprStmt{x}
}

// blockExpr is { statements; x } after its brace. An expression without a semicolon
// at the end is its value.
func (p *parser) blockExpr(open token) *BlockExpr {
	defer p.deeper()()
	b := &BlockExpr{Body: []Stmt{}}
	for {
		t := p.peek()
		switch {
		case t.kind == tokEOF:
			p.fail(open.pos, open.end, "'{' without '}'")
		case t.kind == tokPunct && t.text == "}":
			b.node = p.node(open.pos, p.next().end)
			return b
		case t.kind == tokPunct && t.text == ";":
			p.next()
		default:
			p.semicolon = false
			s := p.stmt()
			if x, ok := s.(*ExprStmt); ok && !p.semicolon && p.is("}") {
				b.X = x.X
			} else {
				b.Body = append(b.Body, s)
			}
		}
	}
}

// end is a semicolon, which may be left out before the brace.
func (p *parser) end() {
	if p.semicolon = p.accept(";"); p.semicolon || p.is("}") {
		return
	}
	t := p.peek()
	p.fail(t.pos, t.end, "expected ';' or '}', found %s", t)
}

func (p *parser) ifStmt() Stmt {
	s := &If{comptime: p.accept("comptime")}
	s.Cond = p.expr()
	s.Then = p.block("after if and its condition")
	if p.accept("else") {
		if p.is("if") {
			defer p.deeper()()
			p.next()
			s.Else = []Stmt{p.ifStmt()}
		} else {
			s.Else = p.block("after else")
		}
	}
	return s
}

// forStmt reads for ($kv : @map) { … } and for ($i : from..to) { … }, which is a while over a counter that the
// script cannot name, so that continue and assignments to $i do no harm.
func (p *parser) forStmt(t token) Stmt {
	open := p.accept("(")
	closed := func(what string) {
		if open {
			p.expect(")", what)
		}
	}
	v := p.next()
	if v.kind != tokVar {
		p.fail(v.pos, v.end, "for declares a $variable, not %s: write for ($i : 0..10) { }", v)
	}
	p.expect(":", "after the variable")
	if m := p.peek(); m.kind == tokMap {
		p.next()
		closed("after the map, all of which for goes over")
		loop := &For{pos: t.pos, end: t.end, Var: &Var{p.node(v.pos, v.end), v.text}, Map: &MapRef{node: p.node(m.pos, m.end), Name: m.text}}
		loop.Body = p.block("after for (…)")
		return loop
	}
	from := p.expr()
	p.expect("..", "between the ends of a range")
	to := p.expr()
	closed("after the range")
	a, ok1 := constant(from, p.script)
	b, ok2 := constant(to, p.script)
	few := ok1 && ok2 && b-a <= fewTurns
	at := p.node(t.pos, t.end)
	name := fmt.Sprintf("$for %d", t.pos) // no script can write it
	i := func() *Var { return &Var{p.node(v.pos, v.end), v.text} }
	next, end := func() *Var { return &Var{p.node(t.pos, t.end), name} }, func() *Var { return &Var{p.node(t.pos, t.end), name + " end"} }
	body := append([]Stmt{
		&Assign{t.pos, t.end, i(), "", next()},
		&ExprStmt{&IncDec{node: p.node(t.pos, t.end), Op: "++", X: next()}},
	}, p.block("after for (…)")...)
	return &Block{[]Stmt{
		&Assign{t.pos, t.end, next(), "", from}, &Assign{t.pos, t.end, end(), "", to},
		&While{Cond: &Binary{at, "<", next(), end()}, Body: body, few: few},
	}}
}

func (p *parser) let() Stmt {
	t := p.next()
	if t.kind != tokVar {
		p.fail(t.pos, t.end, "let declares $variables, not %s", t)
	}
	l := &Let{Var: &Var{p.node(t.pos, t.end), t.text}}
	if p.accept(":") {
		n := p.typeName()
		l.As = &n
	}
	if p.accept("=") {
		l.Value = p.expr()
	}
	p.end()
	return l
}
