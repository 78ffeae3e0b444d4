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
	value []byte   // of maps that are no aggregations
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
	// A map that changes all the time may be seen in part: better than nothing.
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("reading %s: %w", d.name, err)
	}
	return nil
}

// written says that there is something in a place of an array.
func written(value []byte) bool {
	return slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
}

// entries reads a map, in the order in which it is printed: by value, smallest
// first, then by key.
func (r *Run) entries(d *mapDef) ([]*entry, error) {
	var list []*entry
	seen := map[string]bool{}
	err := r.each(d, func(key []byte, values [][]byte) {
		if seen[string(key)] {
			return
		}
		seen[string(key)] = true
		if e := newEntry(d, slices.Clone(key), values); !d.keyed || !d.value.aggregate() || !e.empty(d.value) {
			list = append(list, e)
		}
	})
	if err != nil {
		return nil, err
	}
	r.sort(d, list)
	return list, nil
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
	case HistOf, LhistOf:
		for _, n := range e.nums {
			if n != 0 {
				return false
			}
		}
		return true
	}
	return false
}

// one reads a single key, nil if it is not there.
func (r *Run) one(d *mapDef, key []byte) *entry {
	m := r.l.maps[d.name]
	if m == nil {
		return nil
	}
	values := [][]byte{make([]byte, d.value.store())}
	into := any(&values[0])
	if d.perCPU() {
		into = &values
	}
	if m.Lookup(key[:m.KeySize()], into) != nil || m.Type() == ebpf.PerCPUArray && !slices.ContainsFunc(values, written) {
		return nil
	}
	return newEntry(d, key, values)
}

// total adds up the values of the CPUs.
func total(t *Type, values [][]byte) []uint64 {
	sum := make([]uint64, t.store()/8)
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
	m, zero := r.l.maps[d.name], make([]byte, d.value.store())
	for _, k := range keys {
		switch {
		case !keep && m.Type() != ebpf.PerCPUArray:
			_ = m.Delete(k)
		case d.perCPU():
			_ = m.Update(k[:m.KeySize()], slices.Repeat([][]byte{zero}, cpus), ebpf.UpdateExist)
		default:
			_ = m.Update(k, zero, ebpf.UpdateExist)
		}
	}
}
