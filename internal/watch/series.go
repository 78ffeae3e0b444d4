// SPDX-License-Identifier: Apache-2.0

package watch

import "sort"

// A series is cells by key and by second. It is bounded by the age of seconds, by the
// number of keys and by the number of cells: whole seconds go, the oldest first. A few
// seconds are always kept; what finds no room beside them is refused. Both are counted.
type series[K comparable, V any] struct {
	keep      int64 // seconds
	least     int64 // seconds that are never given up for room
	mostKeys  int
	mostCells int

	seconds map[int64]map[K]*V
	order   []int64   // the seconds there are, ascending
	keys    map[K]int // in how many seconds a key is
	cells   int

	evicted uint64 // cells that went before their time
	refused uint64 // rows without room
	late    uint64 // rows of a time that is over
}

func newSeries[K comparable, V any](o *Options, mostKeys int) *series[K, V] {
	return &series[K, V]{
		keep: int64(o.Keep.Seconds()), least: int64(o.Least.Seconds()), mostKeys: mostKeys, mostCells: o.Cells,
		seconds: map[int64]map[K]*V{}, keys: map[K]int{},
	}
}

// cell is where a row of this second and key is added; nil: there is no room.
func (s *series[K, V]) cell(at int64, k K) *V {
	if n := len(s.order); n > 0 && at <= s.order[n-1]-s.keep {
		s.late++
		return nil
	}
	s.expire(at - s.keep)
	if v := s.seconds[at][k]; v != nil {
		return v
	}
	for s.cells >= s.mostCells || s.keys[k] == 0 && len(s.keys) >= s.mostKeys {
		if len(s.order) == 0 || s.order[0] > max(at, s.order[len(s.order)-1])-s.least {
			s.refused++
			return nil
		}
		s.evicted += uint64(len(s.seconds[s.order[0]]))
		s.drop()
	}
	second := s.seconds[at]
	if second == nil {
		second = map[K]*V{}
		s.seconds[at] = second
		i := sort.Search(len(s.order), func(i int) bool { return s.order[i] >= at })
		s.order = append(s.order, 0)
		copy(s.order[i+1:], s.order[i:])
		s.order[i] = at
	}
	v := new(V)
	second[k] = v
	s.keys[k]++
	s.cells++
	return v
}

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
		if s.keys[k]--; s.keys[k] == 0 {
			delete(s.keys, k)
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
			do(at, k, v)
		}
	}
}
