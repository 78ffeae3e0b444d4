// SPDX-License-Identifier: Apache-2.0

package watch

import "seine/internal/kern"

// A thin is a histogram that keeps only non-empty slots. A second of a service has only a
// few.
type thin struct {
	count, sum, min, max uint64
	slots                []slot
}

type slot struct {
	at uint16
	n  uint32
}

// merge adds the values of h.
func (t *thin) merge(h *kern.Hist) {
	if h == nil || h.Count == 0 {
		return
	}
	var all kern.Hist
	t.into(&all)
	all.Merge(h)
	t.count, t.sum, t.min, t.max, t.slots = all.Count, all.Sum, all.Min, all.Max, t.slots[:0]
	for i, n := range all.Slots {
		if n > 0 {
			t.slots = append(t.slots, slot{uint16(i), uint32(min(n, 1<<32-1))})
		}
	}
}

// add counts one value.
func (t *thin) add(v uint64) {
	var h kern.Hist
	h.Add(v)
	t.merge(&h)
}

// into adds the values to h.
func (t *thin) into(h *kern.Hist) {
	if t.count == 0 {
		return
	}
	o := kern.Hist{Count: t.count, Sum: t.sum, Min: t.min, Max: t.max}
	for _, s := range t.slots {
		o.Slots[s.at] = uint64(s.n)
	}
	h.Merge(&o)
}
