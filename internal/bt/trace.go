// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"
)

// Trace compiles BCC's trace: a line for each event, by specs
//
//	{p,r,t,u}:{library}:function(signature) (filter) "format", arg, …
func Trace(texts []string, timestamp bool, o Options) (*Program, error) {
	src, list := specs("trace", texts)
	script := newScript(src)
	for _, b := range list {
		if err := b.trace(script); err != nil {
			return nil, err
		}
	}
	o.Head = fmt.Sprintf("%-7s %-7s %-15s %-16s %s\n", "PID", "TID", "COMM", "FUNC", "-")
	if timestamp {
		o.Head = fmt.Sprintf("%-8s ", "TIME") + o.Head
	}
	o.Line = func(r *Run, ev *Event) {
		ev.a.narrow()
		parts := strings.SplitN(r.sprintf(ev), "\x00", 5)
		if r.rows() {
			r.emitTrace(ev, strings.TrimSuffix(parts[4], "\n"))
		}
		if r.out == nil {
			return
		}
		if timestamp {
			fmt.Fprintf(r.out, "%-8s ", ev.Time.Format("15:04:05"))
		}
		fmt.Fprintln(r.out, strings.TrimRight(fmt.Sprintf("%-7s %-7s %-15s %-16s %s", parts[0], parts[1], parts[2], parts[3], parts[4]), " \n"))
	}
	return compile(script, running(), o)
}

// narrow makes %d one of 32 bits, which it is in C and so in BCC: what an int
// function of user space returns has rubbish or zeroes above them.
func (a *action) narrow() {
	for i := range a.verbs {
		if v := &a.verbs[i]; v.size == 0 && strings.IndexByte("diuxXo", v.conv) >= 0 {
			v.size = 4
		}
	}
}

// traceHead is the values that every line begins with.
const traceHead = "%d\x00%d\x00%s\x00%s\x00"

func (b *bccSpec) trace(s *Script) (err error) {
	defer catch(&err)
	text := b.src.Text[:b.to]
	at, err := b.head(text)
	if err != nil {
		return err
	}
	b.names.trace = true
	skip := func() {
		for at < len(text) && isSpace(text[at]) {
			at++
		}
	}
	skip()
	var pred Expr
	if at < len(text) && text[at] == '(' {
		end := cut(text, at+1, len(text), ")")
		if end == len(text) {
			return b.src.errorf(Pos(at), Pos(at+1), "'(' without ')'")
		}
		if pred, err = b.expr(at+1, end); err != nil {
			return err
		}
		at = end + 1
		skip()
	}
	n := b.node()
	name := "func"
	args := []Expr{nil, &Ident{n, "pid"}, &Ident{n, "tid"}, &Ident{n, "comm"}, &Ident{n, name}}
	format := ""
	if at < len(text) {
		p := b.parser(at, len(text))
		t := p.next()
		if t.kind != tokStr {
			return b.src.errorf(t.pos, t.end, "expected a format, found %s: write 'FUNCTION (filter) \"format\", arg, …'", t)
		}
		format = t.text
		verbs, err := parseFormatString(format)
		if err != nil {
			return b.src.errorf(t.pos, t.end, "%v", err)
		}
		at = p.at
		for i := 0; ; i++ {
			skip()
			if at >= len(text) {
				break
			}
			if text[at] != ',' {
				return b.src.errorf(Pos(at), Pos(len(text)), "expected ',' before the next argument")
			}
			end := cut(text, at+1, len(text), ",")
			x, err := b.expr(at+1, end)
			if err != nil {
				return err
			}
			// BCC reads the string that a %s is given the address of.
			if i < len(verbs) && verbs[i].conv == 's' && !isComm(x) {
				pos, e := x.span()
				x = &Call{node: node{pos: pos, end: e}, Name: "str", Args: []Expr{x}}
			}
			args = append(args, x)
			at = end
		}
		if n := len(args) - 5; n != len(verbs) {
			return b.src.errorf(t.pos, t.end, "the format has %s, and %s after it", plural(len(verbs), "place"), plural(n, "argument"))
		}
	}
	args[0] = &Str{n, traceHead + format}
	c := b.clause(pred, &ExprStmt{&Call{node: n, Name: "printf", Args: args}})
	b.withEntry(s, c)
	s.Clauses = append(s.Clauses, c)
	return nil
}

func (r *Run) emitTrace(ev *Event, text string) {
	var fields []field
	b := ev.data
	for i, t := range ev.a.types {
		fields = append(fields, field{ev.a.names[i], r.cell(t, b)})
		b = b[t.store():]
	}
	said := field{"text", nil}
	if text != "" {
		said.value = text
	}
	r.emit(ev.a, ev.Time, append(fields, said)...)
}
