// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"seine/internal/row"
)

// TestSlots: slots follow one another without gaps, and each value is in the
// range of its slot.
func TestSlots(t *testing.T) {
	want := uint64(0)
	for i := range HistSlots {
		lo, hi := slotRange(i)
		if lo != want {
			t.Fatalf("slot %d begins at %d, the one before ends at %d", i, lo, want)
		}
		for _, v := range []uint64{lo, lo + (hi-lo)/2, hi - 1} {
			if got := slot(v); got != i {
				t.Fatalf("slot(%d) is %d, want %d: [%d, %d)", v, got, i, lo, hi)
			}
		}
		want = hi
	}
	if got := slot(math.MaxUint64); got != HistSlots-1 {
		t.Errorf("slot of the largest number is %d, want %d", got, HistSlots-1)
	}
}

// TestQuantile: quantiles are within an eighth of the true value.
func TestQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Hist
	var values []uint64
	for range 10_007 {
		v := uint64(math.Exp(rng.Float64() * 20))
		values = append(values, v)
		h.Add(v)
	}
	slices.Sort(values)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		got := h.Quantile(q)
		want := float64(values[min(len(values)-1, int(q*float64(len(values))))])
		if math.Abs(got-want) > want/8+1 {
			t.Errorf("quantile %v is %v, want %v within an eighth", q, got, want)
		}
	}
	if h.Min != values[0] || h.Max != values[len(values)-1] || h.Count != 10_007 {
		t.Errorf("min %d max %d count %d, want %d, %d, 10007", h.Min, h.Max, h.Count, values[0], values[len(values)-1])
	}
}

// TestMerge: merging two histograms gives the histogram of all values.
func TestMerge(t *testing.T) {
	var a, b, all Hist
	for _, v := range []uint64{3, 3, 900, 1 << 30} {
		a.Add(v)
		all.Add(v)
	}
	for _, v := range []uint64{0, 7, 900} {
		b.Add(v)
		all.Add(v)
	}
	a.Merge(&b)
	if a != all {
		t.Errorf("got count %d sum %d min %d max %d, want %d %d %d %d", a.Count, a.Sum, a.Min, a.Max, all.Count, all.Sum, all.Min, all.Max)
	}
}

// TestBounds: a minimum or maximum that another processor has overwritten is
// taken from the slots.
func TestBounds(t *testing.T) {
	var h Hist
	for _, v := range []uint64{5, 100, 1000} {
		h.Add(v)
	}
	shown := func() *Hist {
		var c row.Cell
		h.Cell(&c)
		return c.Ref.(*Hist)
	}
	if got := shown(); got.Min != 5 || got.Max != 1000 {
		t.Errorf("min %d max %d, want 5 and 1000: what is right stays", got.Min, got.Max)
	}
	h.Min, h.Max = 100, 100
	if got := shown(); got.Min != 5 || got.Max < 960 || got.Max > 1023 {
		t.Errorf("min %d max %d, want 5 and 960 to 1023", got.Min, got.Max)
	}
}

// TestBuckets: buckets are powers of two, 0 has its own, and empty ones between
// are included.
func TestBuckets(t *testing.T) {
	var h Hist
	for _, v := range []uint64{0, 1, 5, 8, 15, 16} {
		h.Add(v)
	}
	want := []Bucket{{0, 1, 1}, {1, 2, 1}, {2, 4, 0}, {4, 8, 1}, {8, 16, 2}, {16, 32, 1}}
	if got := h.Buckets(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (&Hist{}).Buckets(); got != nil {
		t.Errorf("an empty histogram has %v", got)
	}
}
