// SPDX-License-Identifier: Apache-2.0

package tool

// things are the Ts that a walk has found, by key. A walk follows every tick, so their memory is
// used again.
type things[K comparable, T any] struct {
	at  map[K]int32 // indices into all
	all []T         // deleted ones too
}

// reset removes all.
func (s *things[K, T]) reset() {
	clear(s.at)
	if s.all = again(s.all); s.all == nil { // a map does not shrink
		s.at = map[K]int32{}
	}
}

func (s *things[K, T]) put(k K, t *T) {
	if i, there := s.at[k]; there {
		s.all[i] = *t
		return
	}
	s.at[k] = int32(len(s.all))
	s.all = append(s.all, *t)
}

// get returns the T of a key; nil: there is none. It is valid until the next put.
func (s *things[K, T]) get(k K) *T {
	if i, there := s.at[k]; there {
		return &s.all[i]
	}
	return nil
}

func (s *things[K, T]) delete(k K) { delete(s.at, k) }

// again empties a slice to fill it again. It is nil if the slice was nearly empty: its memory
// would be kept for the most that there ever were.
func again[T any](s []T) []T {
	if cap(s) > 4*(len(s)+256) {
		return nil
	}
	return s[:0]
}
