// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"math"
	"math/bits"
	"slices"

	"seine/internal/row"
)

// HistSlots is the number of slots of a histogram: values 0 to 7 have one each,
// then every power of two up to 2^40 is divided into eight.
const HistSlots = 304

// Hist is struct hist of hist.h: a log-linear histogram kept in the kernel.
// Quantiles are exact to a few per cent. Buckets folds the slots to powers of
// two for the book's bars.
type Hist struct {
	Count, Sum uint64
	Min, Max   uint64
	Slots      [HistSlots]uint64
}

// Kind says that a Hist is an object.
func (Hist) Kind() row.Kind { return row.Object }

// Cell returns a copy, because the memory behind h is reused. If two processors wrote a
// minimum or a maximum at once, one of the two is lost. So a bound that does not lie in
// the outermost slot is replaced by the bound of that slot.
func (h *Hist) Cell(c *row.Cell) {
	n := *h
	first := slices.IndexFunc(n.Slots[:], func(count uint64) bool { return count > 0 })
	if first >= 0 {
		last := HistSlots - 1
		for n.Slots[last] == 0 {
			last--
		}
		lo, hi := slotRange(first)
		n.Min = min(max(n.Min, lo), hi-1)
		lo, hi = slotRange(last)
		n.Max = min(max(n.Max, lo), hi-1)
	}
	*c = row.Cell{Kind: row.Object, Ref: &n}
}

// Add counts v, as hist_put does in the kernel.
func (h *Hist) Add(v uint64) {
	if h.Count == 0 || v < h.Min {
		h.Min = v
	}
	h.Max = max(h.Max, v)
	h.Count++
	h.Sum += v
	h.Slots[slot(v)]++
}

// Merge adds the values of o to h.
func (h *Hist) Merge(o *Hist) {
	if o.Count == 0 {
		return
	}
	if h.Count == 0 || o.Min < h.Min {
		h.Min = o.Min
	}
	h.Max = max(h.Max, o.Max)
	h.Count += o.Count
	h.Sum += o.Sum
	for i, n := range o.Slots {
		h.Slots[i] += n
	}
}

// slot is hist_slot of hist.h.
func slot(v uint64) int {
	if v < 8 {
		return int(v)
	}
	e := bits.Len64(v) - 1
	return min(8*(e-2)+int(v>>(e-3)&7), HistSlots-1)
}

// slotRange is the values [lo, hi) that slot i counts; the last one has no end.
func slotRange(i int) (lo, hi uint64) {
	if i < 8 {
		return uint64(i), uint64(i) + 1
	}
	e := i/8 + 2
	w := uint64(1) << (e - 3)
	lo = (8 + uint64(i%8)) * w
	if i == HistSlots-1 {
		return lo, math.MaxUint64
	}
	return lo, lo + w
}

// Each calls do with the slots that are not empty, in ascending order: n values in [lo, hi).
func (h *Hist) Each(do func(lo, hi, n uint64)) {
	for i, n := range h.Slots {
		if n > 0 {
			lo, hi := slotRange(i)
			do(lo, hi, n)
		}
	}
}

// Average is the mean of the values, 0 if there are none.
func (h *Hist) Average() float64 {
	if h.Count == 0 {
		return 0
	}
	return float64(h.Sum) / float64(h.Count)
}

// Quantile is the value below which the share q of the values lies, estimated
// within its slot and never outside Min and Max.
func (h *Hist) Quantile(q float64) float64 {
	if h.Count == 0 {
		return 0
	}
	want := q * float64(h.Count)
	var sum float64
	for i, n := range h.Slots {
		if n == 0 {
			continue
		}
		if sum+float64(n) >= want {
			lo, hi := slotRange(i)
			if i < 8 {
				return float64(lo) // these slots hold one value each
			}
			v := float64(lo) + (float64(hi)-float64(lo))*(want-sum)/float64(n)
			return math.Min(math.Max(v, float64(h.Min)), float64(h.Max))
		}
		sum += float64(n)
	}
	return float64(h.Max)
}

// A Bucket counts the values in [Lo, Hi).
type Bucket struct{ Lo, Hi, Count uint64 }

// Buckets folds the slots to powers of two, from the first non-empty bucket to
// the last, including empty ones between them. 0 has a bucket of its own.
func (h *Hist) Buckets() []Bucket {
	var all [bits.UintSize + 1]uint64
	first, last := -1, -1
	for i, n := range h.Slots {
		if n == 0 {
			continue
		}
		lo, _ := slotRange(i)
		b := bits.Len64(lo)
		all[b] += n
		if first < 0 {
			first = b
		}
		last = b
	}
	if first < 0 {
		return nil
	}
	out := make([]Bucket, 0, last-first+1)
	for b := first; b <= last; b++ {
		lo, hi := uint64(0), uint64(1)
		if b > 0 {
			lo = 1 << (b - 1)
			hi = lo << 1
		}
		out = append(out, Bucket{lo, hi, all[b]})
	}
	return out
}

// Measure returns one of row.Measures. An empty histogram has only a count and
// a sum.
func (h *Hist) Measure(id string) (float64, bool) {
	switch id {
	case "count":
		return float64(h.Count), true
	case "sum":
		return float64(h.Sum), true
	}
	if h.Count == 0 {
		return 0, false
	}
	switch id {
	case "avg":
		return h.Average(), true
	case "min":
		return float64(h.Min), true
	case "max":
		return float64(h.Max), true
	case "p50":
		return h.Quantile(0.5), true
	case "p90":
		return h.Quantile(0.9), true
	case "p99":
		return h.Quantile(0.99), true
	}
	return 0, false
}

// Same is false for any two histograms, because they are not keys.
func (h *Hist) Same() string { return "" }

// Fold merges another histogram into h.
func (h *Hist) Fold(other any) {
	if o, ok := other.(*Hist); ok {
		h.Merge(o)
	}
}
