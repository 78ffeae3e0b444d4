// SPDX-License-Identifier: Apache-2.0

package row

import (
	"math"
	"slices"
	"strings"
)

// A Summary replaces the histogram of each row by its numbers, one column for
// each, for --summary. Rows without a histogram pass as they are.
type Summary struct {
	next    Sink
	schemas map[*Schema]*Schema
	rows    map[*Schema]*Row // reused
}

// Summarize returns a stage for rows of these schemas. Its Into must be called
// before the first row comes.
func Summarize(schemas []*Schema) *Summary {
	s := &Summary{schemas: map[*Schema]*Schema{}, rows: map[*Schema]*Row{}}
	for _, in := range schemas {
		if h := in.hist(); h >= 0 {
			out := summarized(in, h)
			s.schemas[in], s.rows[in] = out, out.New()
		}
	}
	return s
}

// HasHist says whether rows of s have a histogram.
func (s *Schema) HasHist() bool { return s.hist() >= 0 }

// Any says whether there is something to sum up.
func (s *Summary) Any() bool { return len(s.schemas) > 0 }

// Into sets where rows go.
func (s *Summary) Into(next Sink) { s.next = next }

// Schema is the schema of the summaries of rows of in.
func (s *Summary) Schema(in *Schema) *Schema {
	if out := s.schemas[in]; out != nil {
		return out
	}
	return in
}

// Source is the opposite of Schema.
func (s *Summary) Source(out *Schema) *Schema {
	for in, made := range s.schemas {
		if made == out {
			return in
		}
	}
	return out
}

// tenths is how exact averages and percentiles are: one decimal, as in JSON
// histograms.
const tenths = 10

// shownMeasures are those that a table shows.
var shownMeasures = []string{"count", "p50", "p90", "p99", "max"}

// summarized is in without the histogram at h, with its measures in place of it.
func summarized(in *Schema, h int) *Schema {
	out := &Schema{Tool: in.Tool, View: in.View, NoStack: in.NoStack}
	unit := in.Columns[h].Unit
	out.Columns = append(out.Columns, in.Columns[:h]...)
	out.Columns = append(out.Columns, in.Columns[h+1:]...)
	for _, i := range in.Show {
		switch {
		case i < h:
			out.Show = append(out.Show, i)
		case i > h:
			out.Show = append(out.Show, i-1)
		}
	}
	small := len(out.Show) > 0 && !slices.ContainsFunc(out.Show, func(i int) bool { return !out.Columns[i].small() })
	out.Columns = append(out.Columns, Column{ID: "unit", Head: "UNIT", Help: "of sum, avg, min, max and percentiles", Kind: Text, Left: true, Div: 1, Scale: 1})
	for _, id := range Measures {
		c := Column{ID: id, Head: strings.ToUpper(id), Help: "of " + in.Columns[h].ID, Kind: Uint, Div: 1, Scale: 1, Width: 8}
		switch id {
		case "count":
			c.Help, c.Sum = "how many values there were", true
		case "avg", "p50", "p90", "p99":
			c.Div = tenths
		}
		if id != "count" && unit != "" {
			c.Head += "(" + unit + ")"
		}
		if small {
			c.Head = strings.ToLower(c.Head)
		}
		if slices.Contains(shownMeasures, id) {
			out.Show = append(out.Show, len(out.Columns))
		}
		out.Columns = append(out.Columns, c)
	}
	// In a table the order is that of shownMeasures.
	keys := len(out.Show) - len(shownMeasures)
	for i, id := range shownMeasures {
		out.Show[keys+i] = out.Index(id)
	}
	return out
}

// Row hands on the keys and the numbers.
func (s *Summary) Row(r *Row) error {
	out := s.rows[r.Schema]
	if out == nil {
		return s.next.Row(r)
	}
	h := r.Schema.hist()
	n := copy(out.Cells, r.Cells[:h])
	n += copy(out.Cells[n:], r.Cells[h+1:])
	out.Cells[n].SetText(r.Schema.Columns[h].Unit)
	for i, id := range Measures {
		c := &out.Cells[n+1+i]
		*c = Cell{}
		if v, ok := measure(&r.Cells[h], id); ok {
			c.SetUint(uint64(math.Round(v * float64(out.Schema.Columns[n+1+i].Div))))
		}
	}
	return s.next.Row(out)
}

// End passes on.
func (s *Summary) End(e End) error { return s.next.End(e) }
