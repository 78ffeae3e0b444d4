// SPDX-License-Identifier: Apache-2.0

package watch

import "sort"

// A series holds cells by key and second. It is bounded by the age of seconds, by the
// number of keys and by the number of cells: it evicts whole seconds, the oldest first. A
// few seconds are always kept. Rows without room beside them are refused. Both are counted.
type series[K comparable, V any] struct {
	keep      int64 // seconds
	least     int64 // seconds that are never evicted for room
	mostKeys  int
	mostCells int

	seconds map[int64]map[*keyed[K]]*V
	order   []int64 // the seconds there are, ascending
	keys    map[K]*keyed[K]
	cells   int

	evicted uint64 // cells that were evicted early
	refused uint64 // rows without room
	late    uint64 // rows of an expired second
}

// A keyed is a key. Seconds hold a pointer to it, because it is larger than many cells.
type keyed[K comparable] struct {
	key   K
	cells int // the number of seconds that have it
}

func newSeries[K comparable, V any](o *Options, mostKeys int) *series[K, V] {
	return &series[K, V]{
		keep: int64(o.Keep.Seconds()), least: int64(o.Least.Seconds()), mostKeys: mostKeys, mostCells: o.Cells,
		seconds: map[int64]map[*keyed[K]]*V{}, keys: map[K]*keyed[K]{},
	}
}

// cell returns the cell of a second and key; nil: there is no room.
func (s *series[K, V]) cell(at int64, k K) *V {
	if n := len(s.order); n > 0 && at <= s.order[n-1]-s.keep {
		s.late++
		return nil
	}
	s.expire(at - s.keep)
	if v := s.seconds[at][s.keys[k]]; v != nil {
		return v
	}
	for s.cells >= s.mostCells || !s.has(k) && len(s.keys) >= s.mostKeys {
		if len(s.order) == 0 || s.order[0] > max(at, s.order[len(s.order)-1])-s.least {
			s.refused++
			return nil
		}
		s.evicted += uint64(len(s.seconds[s.order[0]]))
		s.drop()
	}
	second := s.seconds[at]
	if second == nil {
		second = map[*keyed[K]]*V{}
		s.seconds[at] = second
		i := sort.Search(len(s.order), func(i int) bool { return s.order[i] >= at })
		s.order = append(s.order, 0)
		copy(s.order[i+1:], s.order[i:])
		s.order[i] = at
	}
	key := s.keys[k]
	if key == nil {
		key = &keyed[K]{key: k}
		s.keys[k] = key
	}
	v := new(V)
	second[key] = v
	key.cells++
	s.cells++
	return v
}

// has reports whether any second has the key.
func (s *series[K, V]) has(k K) bool { return s.keys[k] != nil }

// expire drops the seconds up to and including until.
func (s *series[K, V]) expire(until int64) {
	for len(s.order) > 0 && s.order[0] <= until {
		s.drop()
	}
}

// drop drops the oldest second.
func (s *series[K, V]) drop() {
	at := s.order[0]
	for k := range s.seconds[at] {
		if k.cells--; k.cells == 0 {
			delete(s.keys, k.key)
		}
	}
	s.cells -= len(s.seconds[at])
	delete(s.seconds, at)
	s.order = s.order[1:]
}

// each calls do with the cells from one second to another, both included, in the
// order of time.
func (s *series[K, V]) each(from, to int64, do func(at int64, k K, v *V)) {
	for _, at := range s.order {
		if at < from || at > to {
			continue
		}
		for k, v := range s.seconds[at] {
			do(at, k.key, v)
		}
	}
}
