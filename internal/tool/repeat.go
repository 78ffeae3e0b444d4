// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"slices"
	"time"
)

// A Repeat joins events of a Stream that say the same again and again: the first one is
// shown at once, and those that follow are added up and shown once a second.
type Repeat[T any] struct {
	// Key is what events that are joined have in common, of a type that can be
	// compared.
	Key func(*T) any
	// Add makes next, the newest event, the sum of both.
	Add func(next, before *T)
}

// repeatEvery is how often a sum is shown.
const repeatEvery = time.Second

// repeats are the events that wait to be shown.
type repeats[T any] struct {
	Repeat[T]
	held  map[any]*repeated[T] // by the keys that were shown in the last second
	order []*repeated[T]       // the same, as they came
}

// repeated are the events of one key since a row of it was shown.
type repeated[T any] struct {
	key   any
	shown time.Time
	some  bool
	sum   T
}

// take says whether an event is to be shown now, else it waits.
func (r *repeats[T]) take(t *T, now time.Time) bool {
	key := r.Key(t)
	h := r.held[key]
	switch {
	case h == nil:
		h = &repeated[T]{key: key, shown: now}
		r.held[key], r.order = h, append(r.order, h)
		return true
	case h.some:
		next := *t
		r.Add(&next, &h.sum)
		h.sum = next
	default:
		h.some, h.sum = true, *t
	}
	return false
}

// due shows sums that have waited long enough, or all of them, in the order in which their keys
// were shown first, and forgets keys that did not come again.
func (r *repeats[T]) due(now time.Time, all bool, show func(*T) error) error {
	for _, h := range r.order {
		if !h.some || !all && now.Sub(h.shown) < repeatEvery {
			continue
		}
		h.shown, h.some = now, false
		if err := show(&h.sum); err != nil {
			return err
		}
	}
	r.order = slices.DeleteFunc(r.order, func(h *repeated[T]) bool {
		over := !h.some && now.Sub(h.shown) >= repeatEvery
		if over {
			delete(r.held, h.key)
		}
		return over
	})
	return nil
}
