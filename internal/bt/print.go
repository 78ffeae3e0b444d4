// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// show prints a map, all of it or the top largest values, and hands it on as rows.
func (r *Run) show(d *mapDef, top, div int64, now time.Time) error {
	list, err := r.entries(d)
	if err != nil {
		return err
	}
	if r.out != nil {
		r.printEntries(r.out, d, list, top, div)
	}
	if r.rows() {
		r.emitEntries(d, list, top, now)
	}
	return nil
}

// printEntries prints entries as bpftrace does.
func (r *Run) printEntries(w io.Writer, d *mapDef, list []*entry, top, div int64) {
	if top > 0 && int64(len(list)) > top {
		list = list[int64(len(list))-top:]
	}
	if r.native() {
		if len(list) > 0 {
			r.nativeMap(d, list, div)
		}
		return
	}
	for _, e := range list {
		r.printEntry(w, d, e, div)
	}
	if d.keyed && !d.value.hist() && len(list) > 0 {
		fmt.Fprintln(w)
	}
}

func (t *Type) hist() bool { return t.Kind == HistOf || t.Kind == LhistOf || t.Kind == TseriesOf }

func (r *Run) printEntry(w io.Writer, d *mapDef, e *entry, div int64) {
	fmt.Fprintf(w, "%s%s: ", d.name, r.keyText(d, e.key))
	if d.value.hist() {
		fmt.Fprintln(w)
	}
	r.printValue(w, d, e, div)
}

func (r *Run) printValue(w io.Writer, d *mapDef, e *entry, div int64) {
	switch d.value.Kind {
	case HistOf:
		bars(w, logBuckets(d.value.bits, e.nums), div)
	case LhistOf:
		bars(w, linearBuckets(d.value, e.nums), div)
	case TseriesOf:
		printSeries(w, d.value, e.nums, div)
	default:
		fmt.Fprintln(w, r.valueText(d.value, e, div))
	}
}

// keyText is [k1, k2], or nothing.
func (r *Run) keyText(d *mapDef, key []byte) string {
	if !d.keyed {
		return ""
	}
	var parts []string
	for _, t := range d.keys {
		parts = append(parts, r.text(t, key))
		key = key[t.store():]
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (r *Run) valueText(t *Type, e *entry, div int64) string {
	if div == 0 {
		div = 1
	}
	num := func(v uint64) string {
		if t.Signed || t.Kind == CountOf {
			return strconv.FormatInt(int64(v)/div, 10)
		}
		return strconv.FormatUint(v/uint64(div), 10)
	}
	switch t.Kind {
	case CountOf, SumOf, MinOf, MaxOf:
		return num(e.nums[0])
	case AvgOf:
		return strconv.FormatInt(average(t, e.nums)/div, 10)
	case StatsOf:
		return fmt.Sprintf("count %d, average %d, total %s", e.nums[1], average(t, e.nums)/div, num(e.nums[0]))
	case Number:
		if div != 1 {
			return strconv.FormatInt(int64(word(e.value))/div, 10)
		}
	}
	return r.text(t, e.value)
}

// A bucket of a histogram. Lo and Hi are for JSON: [Lo, Hi).
type bucket struct {
	label  string
	count  uint64
	lo, hi string
}

// logBuckets are those of hist(), from the first that is not empty to the last.
func logBuckets(bits int, nums []uint64) []bucket {
	var out []bucket
	first, last := span(nums)
	if bits > 0 {
		return fineBuckets(bits, nums, first, last)
	}
	for i := first; i <= last; i++ {
		b := bucket{count: nums[i]}
		switch i {
		case 0:
			b.label, b.hi = "(..., 0)", "0"
		case 1:
			b.label, b.lo, b.hi = "[0]", "0", "1"
		case 2:
			b.label, b.lo, b.hi = "[1]", "1", "2"
		default:
			lo := uint64(1) << (i - 2)
			b.label = "[" + short(lo) + ", " + short2(i-1) + ")"
			b.lo = strconv.FormatUint(lo, 10)
			if i-1 < 64 {
				b.hi = strconv.FormatUint(lo<<1, 10)
			}
		}
		out = append(out, b)
	}
	return out
}

// fineBuckets are those of hist(x, bits).
func fineBuckets(bits int, nums []uint64, first, last int) (out []bucket) {
	// begin is where bucket i begins: below 2^bits each value has one.
	begin := func(i int) uint64 {
		if i -= 1; i < 1<<bits {
			return uint64(i)
		}
		return (uint64(i)&(1<<bits-1) | 1<<bits) << (i>>bits - 1)
	}
	for i := first; i <= last; i++ {
		b := bucket{count: nums[i]}
		if i == 0 {
			b.label, b.hi = "(..., 0)", "0"
			out = append(out, b)
			continue
		}
		lo := begin(i)
		b.lo, b.label = strconv.FormatUint(lo, 10), "["+label(lo)+"]"
		if i < len(nums)-1 {
			hi := begin(i + 1)
			if b.hi = strconv.FormatUint(hi, 10); hi > lo+1 {
				b.label = "[" + label(lo) + ", " + label(hi) + ")"
			}
		} else {
			b.label = "[" + label(lo) + ", ...)"
		}
		out = append(out, b)
	}
	return out
}

// span is the first and the last bucket that are not empty.
func span(nums []uint64) (first, last int) {
	first, last = 0, -1
	for i, n := range nums {
		if n == 0 {
			continue
		}
		if last < 0 {
			first = i
		}
		last = i
	}
	return first, last
}

// short writes a power of two as 4K, 1M.
func short(v uint64) string { return short2(bits.Len64(v) - 1) }

func short2(exp int) string {
	return strconv.FormatUint(1<<(exp%10), 10) + [...]string{"", "K", "M", "G", "T", "P", "E"}[exp/10]
}

// linearBuckets are those of lhist().
func linearBuckets(t *Type, nums []uint64) []bucket {
	var out []bucket
	first, last := span(nums)
	for i := first; i <= last; i++ {
		b := bucket{count: nums[i]}
		switch i {
		case 0:
			b.label, b.hi = "(..., "+label(t.min)+")", strconv.FormatInt(t.min, 10)
		case len(nums) - 1:
			b.label, b.lo = "["+label(t.max)+", ...)", strconv.FormatInt(t.max, 10)
		default:
			lo := t.min + int64(i-1)*t.step
			b.label = "[" + label(lo) + ", " + label(lo+t.step) + ")"
			b.lo, b.hi = strconv.FormatInt(lo, 10), strconv.FormatInt(lo+t.step, 10)
		}
		out = append(out, b)
	}
	return out
}

// label shortens multiples of 1024, as bpftrace does.
func label[N int64 | uint64](v N) string {
	unit := 0
	for v != 0 && v%1024 == 0 && unit < 6 {
		v /= 1024
		unit++
	}
	return fmt.Sprint(v) + [...]string{"", "K", "M", "G", "T", "P", "E"}[unit]
}

const barWidth = 52

func bars(w io.Writer, list []bucket, div int64) {
	most := uint64(1)
	for _, b := range list {
		most = max(most, b.count)
	}
	if div == 0 {
		div = 1
	}
	for _, b := range list {
		n := int(float64(b.count) / float64(most) * barWidth)
		fmt.Fprintf(w, "%-16s%8d |%-*s|\n", b.label, b.count/uint64(div), barWidth, strings.Repeat("@", n))
	}
	fmt.Fprintln(w)
}
