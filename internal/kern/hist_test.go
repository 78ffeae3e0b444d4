// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSlots: slots follow on one another without gap, and each value is in the
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

// TestSubMerge: what was counted since is the difference, and adding it up
// again gives the whole.
func TestSubMerge(t *testing.T) {
	var a, b Hist
	for _, v := range []uint64{0, 3, 3, 900, 1 << 30} {
		a.Add(v)
		b.Add(v)
	}
	for _, v := range []uint64{7, 900} {
		b.Add(v)
	}
	d := b
	d.Sub(&a)
	if d.Count != 2 || d.Sum != 907 || d.Slots[slot(900)] != 1 || d.Slots[slot(3)] != 0 {
		t.Errorf("difference has count %d sum %d, want 2 and 907", d.Count, d.Sum)
	}
	d.Merge(&a)
	if d.Slots != b.Slots || d.Count != b.Count || d.Sum != b.Sum {
		t.Error("difference and old together are not the new")
	}
}

// TestBuckets: powers of two, 0 apart, empty ones between included.
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
