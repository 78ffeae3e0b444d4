// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"slices"
	"strings"
	"testing"

	"seine/internal/kern"
	"seine/internal/row"
	rowsink "seine/internal/sink"
)

// asJSON has a program write its rows as JSON in place of its text.
func asJSON(compile func(Options) (*Program, error)) func(Options) (*Program, error) {
	return func(o Options) (*Program, error) {
		o.Rows = must(rowsink.New("json", o.Out, rowsink.Options{}))
		o.Out = nil
		return compile(o)
	}
}

// TestRows: what a script prints comes as rows too, and its text is the same with them
// and without.
func TestRows(t *testing.T) {
	const text = `BEGIN { $n = (uint64)18446744073709551615; printf("n %d of %s\n", -7, "x"); printf("%llu\n", $n); @c["k", 2] = count(); @c["k", 2] = count();
		@h = lhist(15, 0, 20, 10); @s[kstack(2)] = sum(-3); print((1, "two")); @b = true; exit(); }`
	alone, _ := live(t, script(text), Options{}, nil)
	var rows row.Collect
	both, _ := live(t, script(text), Options{Rows: &rows}, nil)
	without := func(s string) string { // the stack's own names
		return strings.Join(slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.HasPrefix(l, " ") }), "\n")
	}
	if without(alone) != without(both) || !strings.Contains(both, "n -7 of x\n") {
		t.Errorf("the text is\n%s\nwith rows, and without\n%s", both, alone)
	}
	got := map[string]*row.Row{}
	for _, r := range rows.Rows {
		if r.Schema.Tool != "run" || r.Cells[0].Kind != row.Time || r.Cells[0].N == 0 {
			t.Errorf("a row of %s at %+v", r.Schema.Tool, r.Cells[0])
		}
		name := "call"
		if m := r.Get("map"); m != nil {
			name = m.S
		} else if c := r.Get("text"); c != nil {
			name = c.S
		}
		got[name] = r
	}
	cell := func(name, id string) row.Cell {
		if got[name] == nil || got[name].Get(id) == nil {
			t.Fatalf("no %s of %s among %v", id, name, got)
		}
		return *got[name].Get(id)
	}
	for _, c := range []struct {
		name, id string
		want     row.Cell
	}{
		{"@c", "key0", row.Cell{Kind: row.Text, S: "k"}},
		{"@c", "key1", row.Cell{Kind: row.Int, N: 2}},
		{"@c", "count", row.Cell{Kind: row.Uint, N: 2}},
		{"@h", "count", row.Cell{Kind: row.Uint, N: 1}},
		{"@h", "buckets", row.Cell{Kind: row.Object, Ref: row.JSON(`[{"lo":10,"hi":20,"count":1}]`)}},
		{"@b", "value", row.Cell{Kind: row.Bool, N: 1}},
		{"18446744073709551615", "n", row.Cell{Kind: row.Uint, N: 1<<64 - 1}},
		{"(1, two)", "text", row.Cell{Kind: row.Text, S: "(1, two)"}},
	} {
		if c.want != cell(c.name, c.id) {
			t.Errorf("%s of %s is %+v, want %+v", c.id, c.name, cell(c.name, c.id), c.want)
		}
	}
	if c := cell("@s", "sum"); int64(c.N) != -3 {
		t.Errorf("the sum is %+v, want -3", c)
	}
	if s, ok := cell("@s", "kstack").Ref.(*kern.Stack); !ok || len(s.Frames) == 0 {
		t.Errorf("the key is %+v, want a stack", cell("@s", "kstack"))
	}
	if n := len(rows.Ends); n == 0 || !rows.Ends[n-1].Last || !rows.Ends[n-1].Output {
		t.Errorf("the ends are %+v, want the last of them last", rows.Ends)
	}
}

// TestLosses: each kind of loss is told to sinks.
func TestLosses(t *testing.T) {
	l := Lost{1, 2, 3, 4, 5, 6, 7, 8, 9}
	got := l.Losses()
	if len(got) != len(l.Summary()) {
		t.Errorf("%d kinds for sinks, %d in words", len(got), len(l.Summary()))
	}
	var sum uint64
	for _, k := range got {
		sum += k.N
	}
	if sum != 45 {
		t.Errorf("they add up to %d, want 45: %v", sum, got)
	}
	if (Lost{}).Losses() != nil {
		t.Error("losses of nothing")
	}
}
