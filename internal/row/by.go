// SPDX-License-Identifier: Apache-2.0

package row

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// MaxGroups is how many groups an output of By can have. Rows that would need
// one more are counted as refused.
const MaxGroups = 100_000

// Groups replaces rows by one row for each distinct set of key values.
type Groups struct {
	next    Sink
	in, out *Schema
	keys    []int // columns of in
	sums    []int // columns of in
	count   int   // column of out
	adds    bool  // in has a column count of its own: it is added up instead

	groups  map[string]*Row
	order   []*Row
	key     []byte
	max     int
	refused uint64
}

// By groups event rows: an output row has the time at which the output ends,
// the keys, count (how many rows there were) and the sums of the columns that
// can be added up. An output ends with End{Output} or End{Last}; then counting
// starts over. A sum of values that were all absent is absent.
func By(next Sink, keys []string, s *Schema) (*Groups, error) {
	if len(keys) == 0 {
		return nil, errors.New("by: no column to group by")
	}
	g := &Groups{next: next, in: s, out: &Schema{Tool: s.Tool, View: s.View}, groups: map[string]*Row{}, max: MaxGroups}
	stamp := Column{ID: "time", Head: "TIME", Help: "end of the time that the row covers", Kind: Time, Div: 1, Scale: 1, Width: 8, Left: true}
	if i := s.Index("time"); i >= 0 {
		stamp.Head, stamp.Width = s.Columns[i].Head, s.Columns[i].Width
	}
	g.out.Columns = append(g.out.Columns, stamp)
	for _, id := range keys {
		i := s.Index(id)
		switch {
		case i < 0:
			return nil, fmt.Errorf("by: %w", Unknown(id, s))
		case id == "time":
			return nil, errors.New("by: rows cannot be grouped by time: use --interval for one output per tick")
		case s.Columns[i].Kind == Object:
			return nil, fmt.Errorf("by: column %s cannot be grouped by", id)
		case slices.Contains(g.keys, i):
			return nil, fmt.Errorf("by: column %s twice", id)
		}
		g.keys = append(g.keys, i)
		g.show(s.Columns[i])
	}
	// A pending operation has not ended and is reported again at the next tick, so it is
	// never counted together with those that have ended.
	if i := s.Index(PendingID); i >= 0 && !slices.Contains(g.keys, i) {
		g.keys = append(g.keys, i)
		g.show(s.Columns[i])
	}
	g.count = len(g.out.Columns)
	count := Column{ID: "count", Head: "COUNT", Help: "how many rows", Kind: Uint, Div: 1, Scale: 1, Width: 8, Sum: true}
	if i := s.Index("count"); i >= 0 && s.Columns[i].Sum {
		count, g.adds = s.Columns[i], true
	}
	if s.Columns[g.keys[0]].small() {
		count.Head = strings.ToLower(count.Head)
	}
	g.show(count)
	for i := range s.Columns {
		c := &s.Columns[i]
		if !c.Sum || !c.isNumber() || c.ID == "count" || slices.Contains(g.keys, i) {
			continue
		}
		g.sums = append(g.sums, i)
		if slices.Contains(s.Show, i) {
			g.show(*c)
		} else {
			g.column(*c)
		}
	}
	return g, nil
}

func (g *Groups) show(c Column) {
	g.out.Show = append(g.out.Show, len(g.out.Columns))
	g.column(c)
}

func (g *Groups) column(c Column) {
	c.As = ""                  // named before rows are grouped
	c.Before, c.After = "", "" // they set it off from columns that are no longer beside it
	g.out.Columns = append(g.out.Columns, c)
}

// Schema is the schema of the rows that come out: time, the keys, count, sums.
// A table shows all but time and the sums that were hidden before.
func (g *Groups) Schema() *Schema { return g.out }

// Into sets the next stage. The stages after By have to know its Schema, so By is made first,
// without a next stage.
func (g *Groups) Into(next Sink) { g.next = next }

// Uses lists the columns that are grouped by: they need their names.
func (g *Groups) Uses() []string {
	ids := make([]string, len(g.keys))
	for i, k := range g.keys {
		ids[i] = g.in.Columns[k].ID
	}
	return ids
}

// Refused is the number of rows that found no room for one more group.
func (g *Groups) Refused() uint64 { return g.refused }

// Row counts the row in its group. Rows of other schemas go through untouched.
func (g *Groups) Row(r *Row) error {
	if r.Schema != g.in {
		return g.next.Row(r)
	}
	g.key = g.key[:0]
	for _, k := range g.keys {
		c := &r.Cells[k]
		g.key = append(g.key, byte(c.Kind))
		g.key = binary.LittleEndian.AppendUint64(g.key, c.N)
		g.key = binary.LittleEndian.AppendUint32(g.key, uint32(len(c.S)))
		g.key = append(g.key, c.S...)
	}
	o := g.groups[string(g.key)]
	if o == nil {
		if len(g.groups) >= g.max {
			g.refused++
			return nil
		}
		o = g.out.New()
		for i, k := range g.keys {
			o.Cells[1+i] = r.Cells[k].Clone()
		}
		o.Cells[g.count].SetUint(0)
		g.groups[string(g.key)] = o
		g.order = append(g.order, o)
	}
	if n := &o.Cells[g.count]; g.adds {
		add(n, r.Get("count"))
	} else {
		n.N++
	}
	for i, k := range g.sums {
		add(&o.Cells[g.count+1+i], &r.Cells[k])
	}
	return nil
}

// add adds c to the sum.
func add(sum, c *Cell) {
	switch {
	case !c.isNumber():
	case sum.Kind == Null:
		*sum = Cell{Kind: c.Kind, N: c.N}
	default:
		sum.N += c.N // two's complement: right for Int too
	}
}

// End hands on the groups when an output is complete, in the order in which
// they were first seen.
func (g *Groups) End(e End) error {
	if !e.Output && !e.Last {
		if e.Losses != nil {
			return g.next.End(e)
		}
		return nil
	}
	e.Output = true
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	rows := g.order
	g.order = nil
	clear(g.groups)
	for _, o := range rows {
		o.Cells[0] = Cell{Kind: Time, N: uint64(e.Time.UnixNano())}
		if err := g.next.Row(o); err != nil {
			return err
		}
	}
	return g.next.End(e)
}
