// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"seine/internal/kern"
	"seine/internal/row"
)

// TestBuild sends the same rows through queries that name every stage.
func TestBuild(t *testing.T) {
	named := map[string]row.Namer{"cgroup": func(_ *row.Row, c *row.Cell) { c.SetText("/" + c.S) }}
	for _, c := range []struct {
		name string
		q    row.Query
		ids  string
		want []string
	}{
		{"all", row.Query{}, "comm tx_bytes", []string{"a 1", "b 20", "a 300", "c 4000"}},
		{"where", row.Query{Where: []string{`comm != "b"`, "tx_bytes > 1"}}, "comm tx_bytes", []string{"a 300", "c 4000"}},
		{"by, sorted", row.Query{By: []string{"comm"}, Sort: "tx_bytes"}, "comm count tx_bytes", []string{"c 1 4000", "a 2 301", "b 1 20"}},
		{"by a name", row.Query{By: []string{"cgroup"}}, "cgroup count", []string{"/x 3", "/y 1"}},
		{"ascending, top", row.Query{Sort: "tx_bytes", Ascending: true, Top: 2}, "tx_bytes", []string{"1", "20"}},
		{"limit", row.Query{Limit: 3}, "tx_bytes", []string{"1", "20", "300"}},
		{"fold", row.Query{Fold: []string{"comm"}}, "comm tx_bytes", []string{"a 301", "b 20", "c 4000"}},
	} {
		var got row.Collect
		s := sample()
		p, err := row.Build(c.q, []*row.Schema{s}, &got)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		head := p.Head(named)
		for _, r := range []map[string]any{
			{"comm": "a", "tx_bytes": 1, "cgroup": "x"}, {"comm": "b", "tx_bytes": 20, "cgroup": "x"},
			{"comm": "a", "tx_bytes": 300, "cgroup": "y"}, {"comm": "c", "tx_bytes": 4000, "cgroup": "x"},
		} {
			if err = head.Row(rowOf(t, s, r)); err != nil {
				break
			}
		}
		if err == nil {
			err = head.End(row.End{Output: true, Last: true})
		}
		if err != nil && !errors.Is(err, row.Done) {
			t.Fatalf("%s: %v", c.name, err)
		}
		var rows []string
		for _, r := range got.Rows {
			rows = append(rows, words(r, strings.Fields(c.ids)...))
		}
		if !slices.Equal(rows, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, rows, c.want)
		}
		if p.Rows() != uint64(len(c.want)) {
			t.Errorf("%s: %d rows are counted, want %d", c.name, p.Rows(), len(c.want))
		}
	}
}

// TestPlan: a plan has the schemas that come out, and takes rows of those alone that
// are wanted.
func TestPlan(t *testing.T) {
	a, b := sample(), sample()
	a.View, b.View = "a", "b"
	hist := &row.Schema{Tool: "sample", Columns: []row.Column{{ID: "size", Kind: row.Object, Unit: "bytes"}}, Show: []int{0}}

	for _, q := range []row.Query{
		{View: "c"}, {By: []string{"comm"}}, {View: "a", By: []string{"nobody"}}, {Summary: true},
	} {
		if _, err := q.Plan([]*row.Schema{a, b}); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
	for _, q := range []row.Query{{Sort: "nobody"}, {Where: []string{"nobody == 1"}}, {Top: -1}} {
		if _, err := row.Build(q, []*row.Schema{a, b}, &row.Collect{}); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}

	for _, choose := range []func() (*row.Plan, error){
		func() (*row.Plan, error) { return row.Query{View: "b"}.Plan([]*row.Schema{a, b}) },
		func() (*row.Plan, error) {
			p, err := row.Query{}.Plan([]*row.Schema{a, b})
			return p, errors.Join(err, p.Drop(func(s *row.Schema) bool { return s == a }))
		},
	} {
		p, err := choose()
		if err != nil || len(p.Schemas) != 1 || p.Schemas[0] != b {
			t.Fatalf("%v: %v comes out", err, p.Schemas)
		}
		var got row.Collect
		pipe, err := p.Build(&got)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*row.Schema{a, b} {
			if err := pipe.Head(nil).Row(rowOf(t, s, map[string]any{"comm": s.View})); err != nil {
				t.Fatal(err)
			}
		}
		if len(got.Rows) != 1 || got.Rows[0].Schema != b {
			t.Errorf("got %d rows, want that of b alone", len(got.Rows))
		}
	}

	p, err := row.Query{Summary: true, Sort: "p50"}.Plan([]*row.Schema{hist})
	if err != nil || p.Schemas[0].Index("p50") < 0 {
		t.Fatalf("%v: %v", err, p)
	}
	var got row.Collect
	pipe, err := p.Build(&got)
	if err != nil {
		t.Fatal(err)
	}
	h := &kern.Hist{}
	h.Add(7)
	head := pipe.Head(nil)
	if err := errors.Join(head.Row(rowOf(t, hist, map[string]any{"size": h})), head.End(row.End{Output: true})); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 1 || words(got.Rows[0], "count", "max") != "1 7" {
		t.Errorf("got %+v", got.Rows)
	}
	if err := p.Drop(func(*row.Schema) bool { return true }); err == nil {
		t.Error("a plan without rows was taken")
	}
}

// TestPipeUses: the stages name the columns that they read.
func TestPipeUses(t *testing.T) {
	s := sample()
	p, err := row.Build(row.Query{Where: []string{`cgroup == "/x"`}, By: []string{"comm"}, Sort: "count"}, []*row.Schema{s}, &row.Collect{})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"cgroup": true, "comm": true, "count": true, "raddr": false} {
		if p.Uses[id] != want {
			t.Errorf("%s is used: %t, want %t", id, p.Uses[id], want)
		}
	}
}
