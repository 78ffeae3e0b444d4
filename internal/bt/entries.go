// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// An entry is one key of a map and its value, added up over the CPUs.
type entry struct {
	key   []byte
	value []byte   // of maps that are not aggregations
	nums  []uint64 // of aggregations: total, count, buckets
}

// each gives the keys of a map and their values: of every CPU, if they are kept
// for each.
func (r *Run) each(d *mapDef, do func(key []byte, values [][]byte)) error {
	m := r.l.maps[d.name]
	if m == nil {
		return nil
	}
	if m.Type() == ebpf.PerCPUArray {
		for i := range m.MaxEntries() {
			var values [][]byte
			if err := m.Lookup(i, &values); err != nil {
				return fmt.Errorf("reading %s: %w", d.name, err)
			}
			if slices.ContainsFunc(values, written) {
				do(binary.NativeEndian.AppendUint64(nil, uint64(i)), values)
			}
		}
		return nil
	}
	key, value := make([]byte, d.keySize()), make([]byte, d.value.store())
	it := m.Iterate()
	if d.perCPU() {
		var values [][]byte
		for it.Next(&key, &values) {
			do(key, values)
		}
	} else {
		for it.Next(&key, &value) {
			do(key, [][]byte{value})
		}
	}
	switch err := it.Err(); {
	case errors.Is(err, ebpf.ErrIterationAborted): // a part is better than nothing
		r.cut++
	case err != nil:
		return fmt.Errorf("reading %s: %w", d.name, err)
	}
	return nil
}

// written says that there is something in a place of an array.
func written(value []byte) bool {
	return slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
}

// entries reads a map, in the order in which it is printed: by value, smallest first, then by key.
// At the end of an interval the values that are read are taken out, so the next reading has only
// what came after this one.
func (r *Run) entries(d *mapDef) ([]*entry, error) {
	var list []*entry
	seen := map[string]bool{}
	err := r.each(d, func(key []byte, values [][]byte) {
		if !seen[string(key)] {
			seen[string(key)] = true
			list = append(list, newEntry(d, slices.Clone(key), values))
		}
	})
	if err != nil {
		return nil, err
	}
	if d.value.aggregate() {
		removes := r.turn && (!d.differs() || r.crowded(d, len(list)))
		list = slices.DeleteFunc(list, func(e *entry) bool { return removes && !r.remove(d, e) || !r.since(d, e, removes) })
	}
	r.sort(d, list)
	return list, nil
}

// differs says whether the addition of an interval is computed as the difference to the last
// reading, so that nothing that came meanwhile is deleted. A minimum has no difference, and a
// script that reads a map or its keys must see it cleared.
func (d *mapDef) differs() bool {
	return !d.read && !d.listed && d.value.Kind != MinOf && d.value.Kind != MaxOf && d.value.Kind != TseriesOf
}

// crowded says whether a map with so many keys has to make room for others.
func (r *Run) crowded(d *mapDef, n int) bool {
	m := r.l.maps[d.name]
	return d.keyed && m.Type() != ebpf.PerCPUArray && n > int(m.MaxEntries()/2)
}

// since subtracts from an entry what was taken from its key before, and says whether something is
// left. At the end of an interval the rest is taken too, unless the key was removed.
func (r *Run) since(d *mapDef, e *entry, removed bool) bool {
	key, now := string(e.key), slices.Clone(e.nums)
	before, again := r.taken[d][key]
	for i := range before {
		e.nums[i] -= before[i]
	}
	left := !d.keyed || !e.empty(d.value)
	if again {
		left = !e.idle(d.value)
	}
	switch {
	case removed:
		delete(r.taken[d], key)
	case r.turn && left: // else a total may be ahead of its count
		if r.taken[d] == nil {
			r.taken[d] = map[string][]uint64{}
		}
		r.taken[d][key] = now
	}
	return left
}

// remove gives an entry the value that its key has when it is deleted, or is set
// to zeroes in an array. It says whether there was one.
func (r *Run) remove(d *mapDef, e *entry) bool {
	m := r.l.maps[d.name]
	values := r.get(d, e.key, m.LookupAndDelete) // of Linux 5.14
	if values == nil {
		if values = r.get(d, e.key, m.Lookup); values == nil {
			return false
		}
		r.drop(d, e.key, len(values), false)
	}
	e.nums = total(d.value, values)
	return true
}

// get reads the values of a key by a call, nil if it fails.
func (r *Run) get(d *mapDef, key []byte, by func(key, value any) error) [][]byte {
	values := [][]byte{make([]byte, d.value.store())}
	into := any(&values[0])
	if d.perCPU() {
		into = &values
	}
	if by(key[:r.l.maps[d.name].KeySize()], into) != nil {
		return nil
	}
	return values
}

// drop deletes a key, or sets it to zeroes of so many CPUs: in an array, or to
// keep it.
func (r *Run) drop(d *mapDef, key []byte, cpus int, keep bool) {
	m, zero := r.l.maps[d.name], make([]byte, d.value.store())
	switch {
	case !keep && m.Type() != ebpf.PerCPUArray:
		_ = m.Delete(key)
	case d.perCPU():
		_ = m.Update(key[:m.KeySize()], slices.Repeat([][]byte{zero}, cpus), ebpf.UpdateExist)
	default:
		_ = m.Update(key, zero, ebpf.UpdateExist)
	}
}

func newEntry(d *mapDef, key []byte, values [][]byte) *entry {
	if d.value.aggregate() {
		return &entry{key: key, nums: total(d.value, values)}
	}
	return &entry{key: key, value: slices.Clone(values[0])}
}

// empty says that nothing has been added since the key was made or cleared.
func (e *entry) empty(t *Type) bool {
	switch t.Kind {
	case MinOf, MaxOf, AvgOf, StatsOf:
		return e.nums[1] == 0
	case HistOf, LhistOf, TseriesOf:
		for _, n := range e.nums {
			if n != 0 {
				return false
			}
		}
		return true
	}
	return false
}

// idle says that nothing has been added since the last reading.
func (e *entry) idle(t *Type) bool {
	if t.Kind == CountOf || t.Kind == SumOf {
		return e.nums[0] == 0
	}
	return e.empty(t)
}

// one reads a single key, nil if it is not there.
func (r *Run) one(d *mapDef, key []byte) *entry {
	m := r.l.maps[d.name]
	if m == nil {
		return nil
	}
	values := r.get(d, key, m.Lookup)
	if values == nil || m.Type() == ebpf.PerCPUArray && !slices.ContainsFunc(values, written) {
		return nil
	}
	e := newEntry(d, key, values)
	if _, again := r.taken[d][string(key)]; again && !r.since(d, e, false) {
		return nil
	}
	return e
}

// total adds up the values of the CPUs.
func total(t *Type, values [][]byte) []uint64 {
	sum := make([]uint64, t.store()/8)
	if t.Kind == TseriesOf {
		mergeSeries(t, sum, values)
		return sum
	}
	for _, v := range values {
		switch t.Kind {
		case MinOf, MaxOf:
			if word(v[8:]) == 0 {
				continue
			}
			n := word(v)
			better := n < sum[0]
			if t.Signed {
				better = int64(n) < int64(sum[0])
			}
			if t.Kind == MaxOf {
				better = !better
			}
			if sum[1] == 0 || better {
				sum[0] = n
			}
			sum[1] = 1
		default:
			for i := range sum {
				sum[i] += word(v[8*i:])
			}
		}
	}
	return sum
}

// rank is what maps are sorted by.
func (e *entry) rank(t *Type) int64 {
	switch t.Kind {
	case HistOf, LhistOf:
		var n uint64
		for _, c := range e.nums {
			n += c
		}
		return int64(n)
	case AvgOf, StatsOf:
		return average(t, e.nums)
	case CountOf, SumOf, MinOf, MaxOf:
		return int64(e.nums[0])
	case Number, Pointer:
		return int64(word(e.value))
	}
	return 0
}

// sort puts entries in the order in which they are printed.
func (r *Run) sort(d *mapDef, list []*entry) {
	slices.SortStableFunc(list, func(a, b *entry) int { return r.compare(d, a, b) })
}

func (r *Run) compare(d *mapDef, a, b *entry) int {
	if c := cmp.Compare(a.rank(d.value), b.rank(d.value)); c != 0 {
		return c
	}
	ka, kb := a.key, b.key
	for _, t := range d.keys {
		n := t.store()
		if t.word() && t.Kind != Name {
			if c := cmp.Compare(int64(word(ka)), int64(word(kb))); c != 0 {
				return c
			}
		} else if c := cmp.Compare(r.text(t, ka[:n]), r.text(t, kb[:n])); c != 0 {
			return c
		}
		ka, kb = ka[n:], kb[n:]
	}
	return 0
}

func average(t *Type, nums []uint64) int64 {
	if nums[1] == 0 {
		return 0
	}
	if t.Signed {
		return int64(nums[0]) / int64(nums[1])
	}
	return int64(nums[0] / nums[1])
}

// clear deletes all keys of a map; zero keeps them.
func (r *Run) clear(d *mapDef, keep bool) {
	var keys [][]byte
	cpus := 0
	_ = r.each(d, func(key []byte, values [][]byte) {
		keys = append(keys, slices.Clone(key))
		cpus = len(values)
	})
	for _, k := range keys {
		r.drop(d, k, cpus, keep)
	}
	delete(r.taken, d)
}
