// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"
	"time"
)

// FuncCount compiles BCC's funccount: how often functions or tracepoints of a
// pattern are reached.
func FuncCount(pattern string, regex bool, o Options) (*Program, error) {
	b := &bccSpec{src: &Source{Name: "funccount", Text: pattern}, to: len(pattern)}
	s := newScript(b.src)
	c, err := b.pattern(regex)
	if err != nil {
		return nil, err
	}
	n := b.node()
	key := "func"
	if b.kind == "t" {
		key = "probe"
	}
	c.Body = []Stmt{&Assign{Target: &MapRef{node: n, Name: "@", Keys: []Expr{&Ident{n, key}}}, Value: &Call{node: n, Name: "count"}}}
	s.Clauses = []*Clause{c}
	o.Show = showFuncs
	return compile(s, running(), o)
}

// pattern is a spec without expressions, with * or as a regular expression.
func (b *bccSpec) pattern(regex bool) (*Clause, error) {
	if regex {
		b.point = [2]Pos{0, Pos(len(b.src.Text))}
		points, err := regexPoints(b.src.Text)
		if err != nil {
			return nil, b.src.errorf(0, Pos(len(b.src.Text)), "%v", err)
		}
		if len(points) == 0 {
			return nil, b.src.errorf(0, Pos(len(b.src.Text)), "no function of this kernel matches")
		}
		b.kind = "p"
		return &Clause{Points: points}, nil
	}
	end, err := b.head(b.src.Text)
	if err != nil {
		return nil, err
	}
	if end != len(b.src.Text) {
		return nil, b.src.errorf(Pos(end), Pos(len(b.src.Text)), "expected nothing after the function")
	}
	return b.clause(nil), nil
}

func showFuncs(r *Run, now time.Time) error {
	d := r.p.c.maps["@"]
	list, err := r.entries(d)
	if err != nil {
		return err
	}
	if r.out != nil {
		fmt.Fprintf(r.out, "%-36s %8s\n", "FUNC", "COUNT")
	}
	for _, e := range list {
		name := strings.TrimPrefix(r.text(d.keys[0], e.key), "tracepoint:")
		if r.rows() {
			r.emit(d, now, field{"map", d.name}, field{"func", name}, field{"count", e.nums[0]})
		}
		if r.out != nil {
			fmt.Fprintf(r.out, "%-36s %8d\n", clean(name), e.nums[0])
		}
	}
	return nil
}
