// SPDX-License-Identifier: Apache-2.0

package row

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func mergeRow(at time.Time, n uint64) *Row {
	s := &Schema{Columns: []Column{{ID: "time", Kind: Time}, {ID: "n", Kind: Uint}}}
	r := s.New()
	r.Cells[0] = Cell{Kind: Time, N: uint64(at.UnixNano())}
	r.Cells[1].SetUint(n)
	return r
}

// TestMerge: rows of sources that tell of the same moments come out by time, each once.
func TestMerge(t *testing.T) {
	const sources, each = 7, 101
	out, began := &Collect{}, time.Now().Add(-time.Hour)
	m := NewMerge(out, 20*time.Second, func(err error) { t.Error(err) })
	var wg sync.WaitGroup
	for s := range uint64(sources) {
		wg.Go(func() {
			to := m.Source()
			for i := range uint64(each) {
				n := i*sources + s
				if err := to.Row(mergeRow(began.Add(time.Duration(n)), n)); err != nil {
					t.Error(err)
				}
			}
			to.End(End{Losses: []Loss{{"ring_full", 1}}, Tool: "x"})
		})
	}
	wg.Wait()
	if len(out.Rows) != 0 {
		t.Errorf("%d rows did not wait", len(out.Rows))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for i, r := range out.Rows {
		if r.Cells[1].N != uint64(i) {
			t.Fatalf("row %d is number %d", i, r.Cells[1].N)
		}
	}
	lost := slices.DeleteFunc(slices.Clone(out.Ends), func(e End) bool { return e.Losses == nil || e.Tool != "x" })
	if len(out.Rows) != sources*each || len(lost) != sources || !out.Ends[len(out.Ends)-1].Last {
		t.Errorf("%d rows and %d losses, want %d and %d; ends: %v", len(out.Rows), len(lost), sources*each, sources, out.Ends)
	}
}

// TestMergeDue: a row is handed on when it has waited, without another one coming.
func TestMergeDue(t *testing.T) {
	out := &told{rows: make(chan uint64, 3)}
	m := NewMerge(out, time.Millisecond, func(err error) { t.Error(err) })
	s := m.Source()
	for n := range uint64(3) {
		s.Row(mergeRow(time.Now(), n))
		if got := <-out.rows; got != n {
			t.Errorf("row %d, want %d", got, n)
		}
	}
}

type told struct{ rows chan uint64 }

func (c *told) Row(r *Row) error { c.rows <- r.Cells[1].N; return nil }
func (c *told) End(End) error    { return nil }

// TestMergeDone: when the sink wants no more, all sources hear of it.
func TestMergeDone(t *testing.T) {
	out, failed := &Collect{}, make(chan error, 1)
	m := NewMerge(Limit(out, 2, false), time.Millisecond, func(err error) { failed <- err })
	a, b := m.Source(), m.Source()
	for n := range uint64(5) {
		a.Row(mergeRow(time.Now().Add(-time.Second), n))
	}
	if err := <-failed; err != Done {
		t.Errorf("got %v, want %v", err, Done)
	}
	if err := b.Row(mergeRow(time.Now(), 9)); err != Done {
		t.Errorf("the other source got %v, want %v", err, Done)
	}
	if err := m.Close(); err != nil && err != Done {
		t.Error(err)
	}
	if len(out.Rows) != 2 {
		t.Errorf("%d rows, want 2", len(out.Rows))
	}
}
