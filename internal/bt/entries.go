// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"cmp"
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

// entries reads a map, in the order in which it is printed: by value, smallest
// first, then by key.
func (r *Run) entries(d *mapDef) ([]*entry, error) {
	m := r.l.maps[d.name]
	if m == nil {
		return nil, nil
	}
	var list []*entry
	seen := map[string]bool{}
	key := make([]byte, d.keySize())
	it := m.Iterate()
	if m.Type() == ebpf.PerCPUHash {
		var values [][]byte
		for it.Next(&key, &values) {
			if !seen[string(key)] {
				seen[string(key)] = true
				list = append(list, &entry{key: slices.Clone(key), nums: total(d.value, values)})
			}
		}
	} else {
		value := make([]byte, d.value.store())
		for it.Next(&key, &value) {
			if seen[string(key)] {
				continue
			}
			seen[string(key)] = true
			e := &entry{key: slices.Clone(key)}
			if d.value.aggregate() {
				e.nums = total(d.value, [][]byte{value})
			} else {
				e.value = slices.Clone(value)
			}
			list = append(list, e)
		}
	}
	// A map that changes all the time may be seen in part: better than nothing.
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("reading %s: %w", d.name, err)
	}
	list = slices.DeleteFunc(list, func(e *entry) bool { return d.keyed && d.value.aggregate() && e.empty(d.value) })
	r.sort(d, list)
	return list, nil
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
	e := &entry{key: key}
	if m.Type() == ebpf.PerCPUHash {
		var values [][]byte
		if m.Lookup(key, &values) != nil {
			return nil
		}
		e.nums = total(d.value, values)
		return e
	}
	value := make([]byte, d.value.store())
	if m.Lookup(key, &value) != nil {
		return nil
	}
	if d.value.aggregate() {
		e.nums = total(d.value, [][]byte{value})
	} else {
		e.value = value
	}
	return e
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
	m := r.l.maps[d.name]
	if m == nil {
		return
	}
	var keys [][]byte
	key := make([]byte, d.keySize())
	if m.Type() == ebpf.PerCPUHash {
		var values [][]byte
		for it := m.Iterate(); it.Next(&key, &values); {
			keys = append(keys, slices.Clone(key))
		}
	} else {
		value := make([]byte, d.value.store())
		for it := m.Iterate(); it.Next(&key, &value); {
			keys = append(keys, slices.Clone(key))
		}
	}
	for _, k := range keys {
		if !keep {
			_ = m.Delete(k)
			continue
		}
		zero := make([]byte, d.value.store())
		if m.Type() == ebpf.PerCPUHash {
			n, _ := ebpf.PossibleCPU()
			all := make([][]byte, n)
			for i := range all {
				all[i] = zero
			}
			_ = m.Update(k, all, ebpf.UpdateExist)
		} else {
			_ = m.Update(k, zero, ebpf.UpdateExist)
		}
	}
}
