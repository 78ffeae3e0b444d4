// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"slices"
	"strings"

	"seine/internal/row"
)

// A Timeline turns the rows of many tools into rows of one kind, so that they fit into one
// table: the time, the tool, the process, the addresses, and a sentence of the tool.
//
// The sentence of a tool has {id} for values. A part in brackets is left out if one of its
// values is absent: "connect: {result}[ after {latency_us} us]".
type Timeline struct {
	next   row.Sink
	schema *row.Schema
	plans  map[*row.Schema]*timelinePlan
	out    *row.Row
	buf    []byte
	table  tableSink // for how values are written
}

// timelinePlan is how rows of one schema become rows of the timeline.
type timelinePlan struct {
	cells []int // of the common columns, -1 where there is none
	parts []timelinePart
}

// timelinePart is a part of a sentence, which may be left out.
type timelinePart struct {
	phrases  []phrase
	optional bool
}

// The columns of a timeline, and the ids under which tools have them. Packets without
// a local side have a source and a destination.
var timelineColumns = []struct {
	row.Column
	also string
}{
	{row.Column{ID: "time", Head: "TIME", Help: "when it happened", Kind: row.Time, Width: 15, Left: true}, ""},
	{row.Column{ID: "tool", Head: "TOOL", Help: "the tool that shows it", Kind: row.Text, Width: 10, Left: true}, ""},
	{row.Column{ID: "pid", Head: "PID", Help: "process", Kind: row.Uint, Width: 7}, ""},
	{row.Column{ID: "comm", Head: "COMM", Help: "process name", Kind: row.Text, Width: 10, Left: true}, ""},
	{row.Column{ID: "laddr", Head: "LADDR", Help: "local address, or source", Kind: row.Addr, Width: 15, Left: true, With: "lport"}, "saddr"},
	{row.Column{ID: "raddr", Head: "RADDR", Help: "remote address, or destination", Kind: row.Addr, Width: 15, Left: true, With: "rport"}, "daddr"},
	{row.Column{ID: "lport", Head: "LPORT", Help: "local port", Kind: row.Uint, Width: 5}, "sport"},
	{row.Column{ID: "rport", Head: "RPORT", Help: "remote port", Kind: row.Uint, Width: 5}, "dport"},
	{row.Column{ID: "says", Head: "WHAT", Help: "what the tool says", Kind: row.Text, Left: true}, ""},
}

const (
	timelineTool = 1
	timelineSays = 8
)

// NewTimeline makes one without tools.
func NewTimeline(netns func(uint64) string) *Timeline {
	t := &Timeline{schema: &row.Schema{Tool: "with"}, plans: map[*row.Schema]*timelinePlan{}}
	for i, c := range timelineColumns {
		c.Div, c.Scale = 1, 1
		t.schema.Columns = append(t.schema.Columns, c.Column)
		if c.ID != "lport" && c.ID != "rport" {
			t.schema.Show = append(t.schema.Show, i)
		}
	}
	t.out = t.schema.New()
	t.table.o.Netns = netns
	return t
}

// Schema is the schema of the rows that come out.
func (t *Timeline) Schema() *row.Schema { return t.schema }

// Into says where rows go.
func (t *Timeline) Into(next row.Sink) { t.next = next }

// Add sets the sentence for rows of a schema. Without one, rows name all of their columns. Keys
// are columns that are named even if the sentence does not have them.
func (t *Timeline) Add(s *row.Schema, says string, keys []string) (uses []string, err error) {
	p := &timelinePlan{}
	var common []string
	for _, c := range timelineColumns {
		i := s.Index(c.ID)
		if i < 0 && c.also != "" {
			i = s.Index(c.also)
		}
		if i >= 0 {
			common = append(common, s.Columns[i].ID)
		}
		p.cells = append(p.cells, i)
	}
	if says == "" {
		says = everything(s, common)
	}
	if p.parts, uses, err = sentence(s, says); err != nil {
		return nil, err
	}
	for _, id := range keys {
		if i := s.Index(id); i >= 0 && s.Columns[i].Kind != row.Object && !slices.Contains(uses, id) && !slices.Contains(common, id) {
			more, _, err := sentence(s, fmt.Sprintf("[, %s {%s}]", id, id))
			if err != nil {
				return nil, err
			}
			p.parts, uses = append(p.parts, more...), append(uses, id)
		}
	}
	t.plans[s] = p
	return append(uses, common...), nil
}

// everything is a sentence that names all columns of s but the common ones.
func everything(s *row.Schema, common []string) string {
	var b strings.Builder
	for i := range s.Columns {
		if c := &s.Columns[i]; c.Kind != row.Object && !slices.Contains(common, c.ID) {
			fmt.Fprintf(&b, "[ %s {%s}]", c.ID, c.ID)
		}
	}
	return b.String()
}

// sentence reads what a tool says, and which columns that takes.
func sentence(s *row.Schema, says string) (parts []timelinePart, uses []string, err error) {
	for rest := says; rest != ""; {
		var part timelinePart
		text, after, found := strings.Cut(rest, "[")
		if text == "" && found {
			if text, after, found = strings.Cut(after, "]"); !found {
				return nil, nil, fmt.Errorf("%s: %q: a bracket is not closed", s.Tool, says)
			}
			part.optional = true
			rest = after
		} else if rest = ""; found {
			rest = "[" + after
		}
		for text != "" {
			words, value, more := strings.Cut(text, "{")
			if !more {
				part.phrases = append(part.phrases, phrase{words: words})
				break
			}
			id, next, closed := strings.Cut(value, "}")
			i := s.Index(id)
			if !closed || i < 0 || s.Columns[i].Kind == row.Object {
				return nil, nil, fmt.Errorf("%s: %q: there is no column for {%s}", s.Tool, says, id)
			}
			c := s.Columns[i]
			c.Scale = 1 // in the unit that its id names
			part.phrases = append(part.phrases, phrase{words, &tableColumn{cell: i, col: &c, div: max(c.Div, 1)}})
			uses, text = append(uses, id), next
		}
		parts = append(parts, part)
	}
	return parts, uses, nil
}

// Row hands on what r says.
func (t *Timeline) Row(r *row.Row) error {
	p := t.plans[r.Schema]
	if p == nil {
		return fmt.Errorf("timeline: rows of %s were not expected", r.Schema.Tool)
	}
	for i, from := range p.cells {
		t.out.Cells[i] = row.Cell{}
		if from >= 0 && !r.Schema.Columns[from].Idle {
			t.out.Cells[i] = r.Cells[from]
		}
	}
	t.out.Cells[timelineTool].SetText(r.Schema.Tool)
	t.buf = t.buf[:0]
	for i := range p.parts {
		t.buf = t.say(t.buf, &p.parts[i], r)
	}
	t.out.Cells[timelineSays].SetText(strings.Trim(string(t.buf), " ,"))
	return t.next.Row(t.out)
}

// End hands on the end.
func (t *Timeline) End(e row.End) error { return t.next.End(e) }

func (t *Timeline) say(b []byte, p *timelinePart, r *row.Row) []byte {
	from := len(b)
	for _, ph := range p.phrases {
		b = append(b, ph.words...)
		if ph.col == nil {
			continue
		}
		c := &r.Cells[ph.col.cell]
		if p.optional && (c.Kind == row.Null || c.Kind == row.Text && c.S == "") {
			return b[:from]
		}
		b = t.value(b, ph.col, c)
		if ph.col.col.Age && r.Pending() {
			b = append(b, '+') // pending: so long already
		}
	}
	return b
}

// value writes text unchanged: the sink that writes the row escapes it.
func (t *Timeline) value(b []byte, k *tableColumn, c *row.Cell) []byte {
	if c.Kind == row.Text {
		return append(b, c.S...)
	}
	return t.table.value(b, k, c)
}
