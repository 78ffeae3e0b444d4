// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"seine/internal/kern"
	"seine/internal/row"
)

// foldedSink writes the input of flame graphs: comm;outer;…;inner N. A user stack stands below
// the kernel stack that it called. If a tool measures several things, which do not add up, the
// metric follows the comm. N is the column count, or the count of the histogram, or 1. Rows
// without stacks are left out.
type foldedSink struct {
	*writer
	plans plans[foldedPlan]
}

type foldedPlan struct {
	comm, metric, count, hist int   // -1 if there is none
	stacks                    []int // outermost first
}

func newFolded(w *writer, o Options) (row.Sink, error) {
	f := &foldedSink{writer: w}
	f.plans.make = func(s *row.Schema) (*foldedPlan, error) { return foldedPlanOf(s), nil }
	for _, s := range o.Schemas {
		if len(foldedPlanOf(s).stacks) > 0 {
			return f, nil
		}
	}
	return nil, errors.New("folded needs stacks, and these rows have none")
}

func foldedPlanOf(s *row.Schema) *foldedPlan {
	p := &foldedPlan{comm: s.Index("comm"), metric: s.Index("metric"), count: s.Index("count"), hist: -1}
	for i := range s.Columns {
		switch c := &s.Columns[i]; {
		case c.IsHist():
			p.hist = i
		case c.Kind == row.Object && strings.HasPrefix(c.ID, "u"): // ustack
			p.stacks = slices.Insert(p.stacks, 0, i)
		case c.Kind == row.Object:
			p.stacks = append(p.stacks, i)
		}
	}
	return p
}

func (f *foldedSink) Row(r *row.Row) error {
	p, err := f.plans.of(r.Schema)
	if err != nil || len(p.stacks) == 0 {
		return err
	}
	line := len(f.buf)
	b := f.buf
	part := func(name string) {
		if len(b) > line {
			b = append(b, ';')
		}
		b = appendFolded(b, name)
	}
	for _, i := range []int{p.comm, p.metric} {
		if i >= 0 && r.Cells[i].Kind == row.Text {
			part(r.Cells[i].S)
		}
	}
	for _, i := range p.stacks {
		s, ok := r.Cells[i].Ref.(*kern.Stack)
		if !ok {
			continue
		}
		for n := range slices.Backward(s.Frames) {
			switch fr := &s.Frames[n]; {
			case fr.Sym != "":
				part(fr.Sym)
			case fr.Module != "":
				part(bracketed(fr.Module))
			default:
				part("[unknown]")
			}
		}
	}
	if len(b) == line {
		part("[unknown]")
	}
	b = append(b, ' ')
	switch h, ok := ref(r, p.hist).(*kern.Hist); {
	case p.count >= 0 && r.Cells[p.count].Kind == row.Uint:
		b = strconv.AppendUint(b, r.Cells[p.count].N, 10)
	case ok:
		b = strconv.AppendUint(b, h.Count, 10)
	default:
		b = append(b, '1')
	}
	f.buf = append(b, '\n')
	return f.room()
}

func ref(r *row.Row, cell int) any {
	if cell < 0 {
		return nil
	}
	return r.Cells[cell].Ref
}

func (f *foldedSink) End(row.End) error { return f.flush() }

// appendFolded writes a name without the characters that separate names and counts.
func appendFolded(b []byte, name string) []byte {
	if name == "" {
		return append(b, '_')
	}
	for _, r := range name { // a wrong byte becomes U+FFFD
		switch {
		case r == ';':
			b = append(b, ':')
		case r == ' ' || !strconv.IsPrint(r):
			b = append(b, '_')
		default:
			b = append(b, string(r)...)
		}
	}
	return b
}
