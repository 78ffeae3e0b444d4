// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"slices"
	"testing"
)

// TestThings: things are found by their keys, and walks over as many things as before allocate
// nothing. Memory for many is released when there are few.
func TestThings(t *testing.T) {
	type thing struct {
		key int
		_   [300]byte
	}
	var s things[int, thing]
	walk := func(n int) {
		s.reset()
		for i := range n {
			s.put(i, &thing{key: i})
		}
	}
	const many = 10_007
	walk(many)
	s.put(7, &thing{key: -7})
	s.delete(8)
	if a, b := s.get(7), s.get(8); a == nil || a.key != -7 || b != nil || len(s.at) != many-1 {
		t.Errorf("7 is %v, 8 is %v, of %d", a != nil, b != nil, len(s.at))
	}
	var keys []int
	for k, i := range s.at {
		if k != 7 && s.all[i].key != k {
			t.Errorf("%d is at %d", s.all[i].key, k)
		}
		keys = append(keys, k)
	}
	if slices.Sort(keys); keys[8] != 9 || keys[many-2] != many-1 {
		t.Errorf("keys %d and %d", keys[8], keys[many-2])
	}
	if n := testing.AllocsPerRun(5, func() { walk(many) }); n > 1 { // a map may grow once more
		t.Errorf("%g allocations in a walk", n)
	}
	walk(11)
	walk(11)
	if cap(s.all) > 4*256+44 {
		t.Errorf("room for %d while there are 11", cap(s.all))
	}
}
