// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// An ArgSpec is one -C or -H of argdist.
type ArgSpec struct {
	Hist bool
	Text string
}

// An argView is how a spec's map is shown.
type argView struct {
	spec  ArgSpec
	m     string
	exprs []string
	label string
	whole bool // no expression: total calls
}

// ArgDist compiles BCC's argdist: counts or histograms of expressions, by specs
//
//	{p,r,t,u}:{library}:function(signature)[:type[,type…]:expr[,expr…][:filter]][#label]
func ArgDist(list []ArgSpec, top int, o Options) (*Program, error) {
	var views []argView
	var texts []string
	for _, sp := range list {
		texts = append(texts, sp.Text)
	}
	src, each := specs("argdist", texts)
	script := newScript(src)
	for i, sp := range list {
		v, err := each[i].argdist(sp, script)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	o.Show = func(r *Run, now time.Time) error { return showArgs(r, views, top, now) }
	return compile(script, running(), o)
}

func (b *bccSpec) argdist(sp ArgSpec, s *Script) (v argView, err error) {
	text := b.src.Text[:b.to]
	v = argView{spec: sp, m: fmt.Sprintf("@spec%d", b.id)}
	if i := strings.LastIndexByte(text, '#'); i >= b.from && !strings.Contains(text[i:], `"`) {
		v.label, text = text[i+1:], text[:i]
	}
	at, err := b.head(text)
	if err != nil {
		return v, err
	}
	var fields [][2]int // types, expressions, filter
	for at < len(text) && text[at] == ':' {
		end := cut(text, at+1, len(text), ":")
		fields = append(fields, [2]int{at + 1, end})
		at = end
	}
	if at != len(text) || len(fields) > 3 {
		return v, b.src.errorf(Pos(at), Pos(len(text)), "expected :type:expression[:filter] after the function")
	}
	n := b.node()
	var keys []Expr
	var pred Expr
	if len(fields) < 2 { // count the calls, or the returned values
		v.whole = b.kind != "r"
		keys = []Expr{&Int{node: n, V: 1}}
		v.exprs = []string{"1"}
		if !v.whole {
			keys, v.exprs = []Expr{&Ident{n, "retval"}}, []string{"$retval"}
		}
	} else if keys, err = b.exprs(&v, fields[0], fields[1]); err != nil {
		return v, err
	}
	if len(fields) == 3 {
		if pred, err = b.expr(fields[2][0], fields[2][1]); err != nil {
			return v, err
		}
	}
	m := &MapRef{node: n, Name: v.m}
	value := &Call{node: n, Name: "count"}
	if sp.Hist {
		if len(keys) != 1 {
			return v, b.src.errorf(b.point[0], b.point[1], "a histogram is of one expression")
		}
		value = &Call{node: n, Name: "hist", Args: keys}
	} else {
		m.Keys = keys
	}
	c := b.clause(pred, &Assign{Target: m, Value: value})
	b.withEntry(s, c)
	s.Clauses = append(s.Clauses, c)
	return v, nil
}

// exprs pairs the types with the expressions.
func (b *bccSpec) exprs(v *argView, types, exprs [2]int) (keys []Expr, err error) {
	defer catch(&err)
	text := b.src.Text
	tAt, eAt := types[0], exprs[0]
	for {
		tEnd, eEnd := cut(text, tAt, types[1], ","), cut(text, eAt, exprs[1], ",")
		x, err := b.expr(eAt, eEnd)
		if err != nil {
			return nil, err
		}
		of, ok := b.parser(tAt, tEnd).tryTypeName()
		if !ok {
			return nil, b.src.errorf(Pos(tAt), Pos(tEnd), "expected a type")
		}
		pos, end := x.span()
		n := node{pos: pos, end: end}
		switch _, known := intNames[of.Name]; {
		case of.Stars == 1 && strings.HasSuffix(of.Name, "char"):
			x = &Call{node: n, Name: "str", Args: []Expr{x}}
		case of.Stars == 0 && known && !isComm(x):
			x = &Cast{n, of, x}
		}
		keys = append(keys, x)
		v.exprs = append(v.exprs, strings.TrimSpace(text[eAt:eEnd]))
		if tEnd == types[1] || eEnd == exprs[1] {
			if tEnd != types[1] || eEnd != exprs[1] {
				return nil, b.src.errorf(Pos(types[0]), Pos(exprs[1]), "there must be as many types as expressions")
			}
			return keys, nil
		}
		tAt, eAt = tEnd+1, eEnd+1
	}
}

func isComm(x Expr) bool {
	id, ok := x.(*Ident)
	return ok && id.Name == "comm"
}

func showArgs(r *Run, views []argView, top int, now time.Time) error {
	for _, v := range views {
		d := r.p.c.maps[v.m]
		list, err := r.entries(d)
		if err != nil {
			return err
		}
		if top > 0 && len(list) > top {
			list = list[len(list)-top:]
		}
		name := v.label
		if name == "" {
			name = v.spec.Text
		}
		if r.rows() {
			for _, e := range list {
				r.emitEntry(d, name, fieldNames(v.exprs), e, now)
			}
		}
		if r.out == nil {
			continue
		}
		if v.spec.Hist {
			if v.label == "" {
				name = v.exprs[0]
			}
			if len(list) > 0 {
				bccHist(r.out, name, list[0].nums)
			}
			continue
		}
		fmt.Fprintln(r.out, name)
		fmt.Fprintf(r.out, "\t%-10s %s\n", "COUNT", "EVENT")
		for _, e := range list {
			var parts []string
			key := e.key
			for i, t := range d.keys {
				parts = append(parts, v.exprs[i]+" = "+r.text(t, key))
				key = key[t.store():]
			}
			event := strings.Join(parts, ", ")
			if v.whole {
				event = "total calls"
			}
			fmt.Fprintf(r.out, "\t%-10d %s\n", e.nums[0], event)
		}
	}
	return nil
}

func fieldNames(exprs []string) []string {
	out := slices.Clone(exprs)
	for i, e := range out {
		e = e[strings.LastIndexAny(e, ">.")+1:]
		out[i] = strings.TrimLeft(strings.TrimSpace(e), "$")
	}
	return out
}

// bccHist prints a histogram as BCC does: 0 and 1 share a line. What is below 0,
// which BCC shows as huge, is above it.
func bccHist(w io.Writer, name string, nums []uint64) {
	rows := make([]uint64, 65)
	last, most := 0, uint64(1)
	for i, n := range nums {
		row := max(min(i, 1), i-1) // of bucket 2^(i-2)
		rows[row] += n
		if rows[row] > 0 {
			last = max(last, row)
		}
	}
	for _, n := range rows {
		most = max(most, n)
	}
	head, body, width := "     %-19s : count     distribution\n", "%10v -> %-10v : %-8d |%-*s|\n", 40
	if last > 32 {
		head, body, width = "               %-29s : count     distribution\n", "%20v -> %-20v : %-8d |%-*s|\n", 20
	}
	fmt.Fprintf(w, head, name)
	for i := range last + 1 {
		var low, high any = uint64(1) << i >> 1, uint64(1)<<i - 1
		switch {
		case i == 0 && rows[0] == 0:
			continue
		case i == 0:
			low, high = "...", -1
		case i == 1:
			low = 0
		}
		stars := strings.Repeat("*", int(float64(width)*float64(rows[i])/float64(most)))
		fmt.Fprintf(w, body, low, high, rows[i], width, stars)
	}
}
