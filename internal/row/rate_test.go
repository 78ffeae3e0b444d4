// SPDX-License-Identifier: Apache-2.0

package row

import (
	"slices"
	"testing"
	"time"
)

// Of each second the first rows pass; the others are counted, and said once a
// while.
func TestRate(t *testing.T) {
	at := time.Unix(1000, 0)
	var said []uint64
	out := &Collect{}
	r := &Rate{Next: out, PerSecond: 3, Every: 2 * time.Second, Now: func() time.Time { return at }, Notice: func(n uint64) { said = append(said, n) }}
	s := &Schema{Columns: []Column{{ID: "n"}}}
	row := s.New()
	var want []uint64
	for second := range 5 {
		for i := range []int{7, 2, 5, 0, 11}[second] {
			row.Cells[0].SetUint(uint64(100*second + i))
			if i < 3 {
				want = append(want, row.Cells[0].N)
			}
			if err := r.Row(row); err != nil {
				t.Fatal(err)
			}
		}
		r.End(End{})
		r.End(End{})
		at = at.Add(time.Second)
	}
	var got []uint64
	for _, row := range out.Rows {
		got = append(got, row.Cells[0].N)
	}
	if !slices.Equal(got, want) || r.Held != 4+2+8 || len(out.Ends) != 10 {
		t.Errorf("passed %v, held %d, %d ends; want %v, 14, 10", got, r.Held, len(out.Ends), want)
	}
	if !slices.Equal(said, []uint64{4, 2, 8}) {
		t.Errorf("said %v, want what was held since the last time", said)
	}
}

// A sink that is done ends the run whatever the rate.
func TestRateDone(t *testing.T) {
	r := &Rate{Next: Limit(&Collect{}, 1, false), PerSecond: 5}
	s := &Schema{}
	if err := r.Row(s.New()); err != Done {
		t.Errorf("got %v, want Done", err)
	}
}
