// SPDX-License-Identifier: Apache-2.0

package top

import (
	"testing"
	"time"

	"seine/internal/row"
	"seine/internal/watch"
)

// counts adds up the events of rows by view.
type counts struct {
	rows   map[string]int
	events uint64
	ends   int
}

func (c *counts) Row(r *row.Row) error {
	c.rows[r.Schema.View]++
	if r.Schema.View == "events" {
		c.events += r.Get("count").N
	}
	return nil
}

func (c *counts) End(row.End) error { c.ends++; return nil }

// TestRowsAddUp: each event is in the rows of exactly one second, also where nothing happened for
// a while.
func TestRowsAddUp(t *testing.T) {
	s := &row.Schema{Tool: "tcplife", Columns: []row.Column{{ID: "time", Div: 1}, {ID: "comm", Div: 1}, {ID: "lport", Div: 1}}}
	m := watch.New(watch.Options{})
	for _, second := range []int{1, 2, 2, 6, 6, 6} {
		r := s.New()
		*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(start.Add(time.Duration(second) * time.Second).UnixNano())}
		r.Get("comm").SetText("web")
		r.Get("lport").SetUint(80)
		m.Row(r)
	}
	c := &counts{rows: map[string]int{}}
	for i := range 10 {
		if err := Rows(m, start.Add(time.Duration(i)*time.Second), c); err != nil {
			t.Fatal(err)
		}
	}
	if c.events != 6 || c.rows["events"] != 3 || c.ends != 10 {
		t.Errorf("got %d events in %d rows of %d seconds, want 6 in 3 of 10", c.events, c.rows["events"], c.ends)
	}
}
