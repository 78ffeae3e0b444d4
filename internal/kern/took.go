// SPDX-License-Identifier: Apache-2.0

package kern

import "unsafe"

// Took is a Hist of nanoseconds in the form of totals: the same bytes, other
// columns.
type Took struct {
	Count uint64            `col:"count,width=10,sum" help:"how often"`
	Sum   Nanos             `col:"total_us,div=1000,width=11,sum" help:"total time"`
	Min   Nanos             `col:"avg_us,div=1000,width=8,prec=1" help:"average time"`
	Max   Nanos             `col:"max_us,div=1000,width=8,prec=1" help:"the longest time"`
	Slots [HistSlots]uint64 `col:"-"`
}

// Hist is the same memory as a histogram.
func (t *Took) Hist() *Hist { return (*Hist)(unsafe.Pointer(t)) }
