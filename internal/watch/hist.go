// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"

	"seine/internal/kern"
)

// A Hist is a histogram that keeps only non-empty slots. Most services and tallies have only a
// few, and a kern.Hist takes 2.5 KB.
type Hist struct {
	Count, Sum, Min, Max uint64
	slots                []slot // ascending
}

type slot struct {
	at uint16
	n  uint32
}

// NewHist has the values of h.
func NewHist(h *kern.Hist) (t Hist) {
	t.merge(h)
	return t
}

// merge adds the values of h.
func (t *Hist) merge(h *kern.Hist) {
	if h == nil || h.Count == 0 {
		return
	}
	o := Hist{Count: h.Count, Sum: h.Sum, Min: h.Min, Max: h.Max}
	filled := 0
	for _, n := range h.Slots {
		if n > 0 {
			filled++
		}
	}
	o.slots = make([]slot, 0, filled)
	for i, n := range h.Slots {
		if n > 0 {
			o.slots = append(o.slots, slot{uint16(i), uint32(min(n, 1<<32-1))})
		}
	}
	if t.Count == 0 {
		*t = o
		return
	}
	t.join(&o)
}

// add counts one value.
func (t *Hist) add(v uint64) {
	var h kern.Hist
	h.Add(v)
	t.merge(&h)
}

// join adds the values of o, and leaves o as it is.
func (t *Hist) join(o *Hist) {
	if o.Count == 0 {
		return
	}
	if t.Count == 0 || o.Min < t.Min {
		t.Min = o.Min
	}
	t.Max = max(t.Max, o.Max)
	t.Count += o.Count
	t.Sum += o.Sum
	i := 0
	for _, s := range o.slots {
		for i < len(t.slots) && t.slots[i].at < s.at {
			i++
		}
		if i < len(t.slots) && t.slots[i].at == s.at {
			t.slots[i].n = uint32(min(uint64(t.slots[i].n)+uint64(s.n), 1<<32-1))
		} else {
			t.slots = slices.Insert(t.slots, i, s)
		}
	}
}

// AddTo adds the values to h.
func (t *Hist) AddTo(h *kern.Hist) {
	if t.Count == 0 {
		return
	}
	if h.Count == 0 || t.Min < h.Min {
		h.Min = t.Min
	}
	h.Max = max(h.Max, t.Max)
	h.Count += t.Count
	h.Sum += t.Sum
	for _, s := range t.slots {
		h.Slots[s.at] += uint64(s.n)
	}
}

// Full returns the histogram with all slots.
func (t *Hist) Full() *kern.Hist {
	h := &kern.Hist{}
	t.AddTo(h)
	return h
}

// Quantile is that of kern.Hist.
func (t *Hist) Quantile(q float64) float64 {
	var h kern.Hist
	t.AddTo(&h)
	return h.Quantile(q)
}
