// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"testing"

	"seine/internal/row"
)

// waits is the sample with a column for what has not ended.
func waits() *row.Schema {
	s := sample()
	s.Columns = append(s.Columns, row.Column{ID: row.PendingID, Head: "PENDING", Kind: row.Bool, Div: 1, Scale: 1})
	return s
}

func waitRows(t *testing.T, s *row.Schema, to row.Sink) {
	t.Helper()
	for _, r := range []*row.Row{
		rowOf(t, s, map[string]any{"comm": "curl", "tx_bytes": 7}),
		rowOf(t, s, map[string]any{"comm": "curl", "tx_bytes": 5, "pending": true}),
		rowOf(t, s, map[string]any{"comm": "curl", "tx_bytes": 9}),
	} {
		if err := to.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.End(row.End{Output: true, Last: true}); err != nil {
		t.Fatal(err)
	}
}

// TestByPending: what is pending is told of again at each tick, so it is counted
// apart from what has ended.
func TestByPending(t *testing.T) {
	s := waits()
	var out row.Collect
	by, err := row.By(nil, []string{"comm"}, s)
	if err != nil {
		t.Fatal(err)
	}
	by.Into(&out)
	waitRows(t, s, by)
	if len(out.Rows) != 2 {
		t.Fatalf("%d groups, want 2", len(out.Rows))
	}
	for _, r := range out.Rows {
		want := map[bool]uint64{true: 1, false: 2}[r.Pending()]
		if got := r.Get("count").N; got != want {
			t.Errorf("pending %v: %d rows, want %d", r.Pending(), got, want)
		}
	}
}

// TestFoldPending: nor is it merged with what has ended.
func TestFoldPending(t *testing.T) {
	s := waits()
	var out row.Collect
	waitRows(t, s, row.Fold(&out, []string{"comm"}))
	if len(out.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(out.Rows))
	}
	for _, r := range out.Rows {
		want := map[bool]uint64{true: 5, false: 16}[r.Pending()]
		if got := r.Get("tx_bytes").N; got != want {
			t.Errorf("pending %v: %d bytes, want %d", r.Pending(), got, want)
		}
	}
}

// TestSortPending: what hangs now comes first, and --top does not cut it.
func TestSortPending(t *testing.T) {
	s := waits()
	var out row.Collect
	sorted, err := row.Sort(&out, "tx_bytes", false, 2, s)
	if err != nil {
		t.Fatal(err)
	}
	waitRows(t, s, sorted)
	if len(out.Rows) != 2 || !out.Rows[0].Pending() || out.Rows[1].Get("tx_bytes").N != 9 {
		t.Errorf("got %v, want the pending one and the largest", out.Rows)
	}
}

// TestWherePending: the column alone is a condition, and absent is not.
func TestWherePending(t *testing.T) {
	s := waits()
	for expr, want := range map[string]int{"pending": 1, "!pending": 2} {
		var out row.Collect
		w, err := row.Where(&out, expr, []*row.Schema{s})
		if err != nil {
			t.Fatal(err)
		}
		waitRows(t, s, w)
		if len(out.Rows) != want {
			t.Errorf("--where %s keeps %d rows, want %d", expr, len(out.Rows), want)
		}
	}
}
