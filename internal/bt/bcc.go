// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// A bccSpec is what BCC's tools have in common: kind:library:function(signature).
type bccSpec struct {
	src   *Source // all specs of the command, one a line
	from  int     // where this one begins
	to    int     // and ends
	id    int
	kind  string // p, r, t, u
	lib   string // library, or the group of a tracepoint
	fn    string
	point [2]Pos
	names *bccNames
}

// specs makes one source of several specs, so that every position is one of it.
func specs(tool string, texts []string) (*Source, []*bccSpec) {
	src := &Source{Name: tool, Text: strings.Join(texts, "\n")}
	var list []*bccSpec
	at := 0
	for i, t := range texts {
		list = append(list, &bccSpec{src: src, from: at, to: at + len(t), id: i})
		at += len(t) + 1
	}
	return src, list
}

// cut ends at the first byte of any of set that is in no bracket or string.
func cut(s string, from, to int, set string) int {
	depth := 0
	for i := from; i < to; i++ {
		switch c := s[i]; {
		case depth == 0 && strings.IndexByte(set, c) >= 0:
			return i
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == '"':
			for i++; i < to && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
	}
	return to
}

// head reads kind:library:function(signature) up to a blank or a colon after it,
// and says where it ends.
func (b *bccSpec) head(text string) (end int, err error) {
	var parts []string
	start := b.from
	for i := b.from; ; i++ {
		if i == len(text) || text[i] == '(' || text[i] == ' ' || text[i] == ':' && len(parts) == 2 {
			parts = append(parts, text[start:i])
			end = i
			break
		}
		if text[i] == ':' {
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	b.point = [2]Pos{Pos(b.from), Pos(end)}
	b.kind = "p"
	switch len(parts) {
	case 1:
		b.fn = parts[0]
	case 2:
		b.lib, b.fn = parts[0], parts[1]
		if len(parts[0]) == 1 && strings.Contains("prtu", parts[0]) && parts[0] != "" {
			b.kind, b.lib = parts[0], ""
		}
	case 3:
		if parts[0] != "" {
			b.kind = parts[0]
		}
		b.lib, b.fn = parts[1], parts[2]
	}
	fail := func(format string, args ...any) error {
		return b.src.errorf(b.point[0], b.point[1], format, args...)
	}
	switch {
	case len(b.kind) != 1 || !strings.Contains("prtu", b.kind):
		return 0, fail("%s: a spec begins with p:, r:, t: or u: (function, its return, tracepoint, user function)", b.kind)
	case b.fn == "":
		return 0, fail("a function or a tracepoint is missing")
	case b.kind == "t" && b.lib == "":
		return 0, fail("write a tracepoint as t:GROUP:NAME")
	case b.kind == "u" && b.lib == "":
		return 0, fail("write a user function as u:FILE:FUNCTION")
	}
	b.names = &bccNames{params: map[string]int{}, types: map[string]TypeName{}, entry: map[string]string{}, ret: b.kind == "r", id: b.id}
	if end < len(text) && text[end] == '(' {
		close := cut(text, end+1, len(text), ")")
		if close == len(text) {
			return 0, b.src.errorf(Pos(end), Pos(end+1), "'(' without ')'")
		}
		if err := b.signature(end+1, close); err != nil {
			return 0, err
		}
		end = close + 1
	}
	return end, nil
}

// signature reads the parameters: the last word of each is its name.
func (b *bccSpec) signature(from, to int) (err error) {
	defer catch(&err)
	text := b.src.Text
	if strings.TrimSpace(text[from:to]) == "" {
		return nil
	}
	n := 0
	for at := from; at <= to; {
		end := cut(text, at, to, ",")
		part := strings.TrimSpace(text[at:end])
		i := strings.LastIndexAny(part, " *")
		if i < 0 {
			return b.src.errorf(Pos(at), Pos(end), "a parameter is a type and a name")
		}
		n++
		name := part[i+1:]
		b.names.params[name] = n
		p := b.parser(at, end)
		if of, ok := p.tryTypeName(); ok && of.Stars == 0 {
			if _, known := intNames[of.Name]; known {
				b.names.types[name] = of
			}
		}
		at = end + 1
	}
	return nil
}

func (b *bccSpec) parser(from, to int) *parser {
	return &parser{
		src: b.src, text: b.src.Text[:to], at: from, script: newScript(b.src), busy: map[string]bool{}, bcc: b.names,
	}
}

var entryCall = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$entry\(\s*(\w+)\s*\)`) })

// expr parses a part of the spec. $entry(x) is replaced first, by a name that
// only the parser knows.
func (b *bccSpec) expr(from, to int) (x Expr, err error) {
	defer catch(&err)
	p := b.parser(from, to)
	if m := entryCall().FindAllStringSubmatchIndex(p.text[from:to], -1); m != nil {
		text := []byte(p.text)
		p.defines = map[string]define{}
		for _, at := range m {
			param := p.text[from+at[2] : from+at[3]]
			if b.names.params[param] == 0 {
				p.fail(Pos(from+at[2]), Pos(from+at[3]), "%s is not a parameter of the signature%s", param, didYouMean(param, sortedKeys(b.names.params)))
			}
			if !b.names.ret {
				p.fail(Pos(from+at[0]), Pos(from+at[1]), "$entry() is for r: probes")
			}
			b.names.entryOf(param, node{})
			// $entry(x) becomes blanks and a map of the same length.
			repl := b.names.entry[param] + "[tid]"
			width := at[1] - at[0]
			if len(repl) > width { // too long: a macro stands for it
				word := fmt.Sprintf("E%d", len(p.defines))
				p.defines[word] = define{text: repl}
				repl = word
			}
			copy(text[from+at[0]:], repl+strings.Repeat(" ", width-len(repl)))
		}
		p.text = string(text)
	}
	x = p.expr()
	if t := p.next(); t.kind != tokEOF {
		p.fail(t.pos, t.end, "expected the end of the expression, found %s", t)
	}
	return x, nil
}

// points is the attach point in bpftrace's words.
func (b *bccSpec) points(ret bool) string {
	switch {
	case b.kind == "t":
		return "tracepoint:" + b.lib + ":" + b.fn
	case b.kind == "u" || b.lib != "":
		if ret {
			return "uretprobe:" + b.lib + ":" + b.fn
		}
		return "uprobe:" + b.lib + ":" + b.fn
	case ret:
		return "kretprobe:" + b.fn
	}
	return "kprobe:" + b.fn
}

func (b *bccSpec) clause(pred Expr, body ...Stmt) *Clause {
	return &Clause{Points: []AttachPoint{{pos: b.point[0], end: b.point[1], Raw: b.points(b.kind == "r")}}, Pred: pred, Body: body}
}

func (b *bccSpec) node() node { return node{pos: b.point[0], end: b.point[1]} }

// withEntry adds the clause that keeps values at the entry of a function, and
// makes the one at its return depend on it.
func (b *bccSpec) withEntry(s *Script, c *Clause) {
	n := b.node()
	tid := func() Expr { return &Ident{n, "tid"} }
	var keep, forget []Stmt
	var have Expr
	add := func(m string, v Expr) {
		ref := func() *MapRef { return &MapRef{node: n, Name: m, Keys: []Expr{tid()}} }
		keep = append(keep, &Assign{Target: ref(), Value: v})
		forget = append(forget, &ExprStmt{&Call{node: n, Name: "delete", Args: []Expr{ref()}}})
		has := Expr(&Call{node: n, Name: "has_key", Args: []Expr{&MapRef{node: n, Name: m}, tid()}})
		if have == nil {
			have = has
		} else {
			have = &Binary{n, "&&", have, has}
		}
	}
	for _, param := range sortedKeys(b.names.entry) {
		arg := Expr(&Ident{n, fmt.Sprintf("arg%d", b.names.params[param]-1)})
		if of, ok := b.names.types[param]; ok {
			arg = &Cast{n, of, arg}
		}
		add(b.names.entry[param], arg)
	}
	if b.names.latency != "" {
		add(b.names.latency, &Ident{n, "nsecs"})
	}
	if have == nil {
		return
	}
	s.Clauses = append(s.Clauses, &Clause{Points: []AttachPoint{{pos: b.point[0], end: b.point[1], Raw: b.points(false)}}, Body: keep})
	// Forget the values also when the filter does not hold.
	body := c.Body
	if c.Pred != nil {
		body = []Stmt{&If{Cond: c.Pred, Then: body}}
	}
	c.Pred, c.Body = have, append(body, forget...)
}

// regexPoints are the kernel functions that a regular expression matches.
func regexPoints(pattern string) ([]AttachPoint, error) {
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, err
	}
	functions, err := running().functions()
	if err != nil {
		return nil, err
	}
	var points []AttachPoint
	for _, f := range functions.find(func(f traceable) bool { return re.MatchString(f.name) }) {
		points = append(points, AttachPoint{end: Pos(len(pattern)), Raw: "kprobe:" + f.module + ":" + f.name, many: true})
	}
	return points, nil
}
