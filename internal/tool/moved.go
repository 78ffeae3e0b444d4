// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"time"
)

// Moved is the Output of a view that shows the Ts from which the view before it makes its rows.
// That view is a Gather: both use one walk and one Diff.
type Moved[K comparable, T any] struct{ Iter[K, T] }

func (s Moved[K, T]) open(ses *Session, _ *View, i int) (reader, error) {
	r := &movedReader[K, T]{iterReader[K, T]{Iter: s.Iter, ses: ses, row: ses.schemas[i].New()}}
	if i == 0 {
		return nil, errors.New("no view is before this one")
	}
	before, ok := ses.readers[i-1].(interface {
		also(func(*T, time.Time) error)
	})
	if !ok {
		return nil, errors.New("the view before this one gathers something else")
	}
	before.also(func(t *T, at time.Time) error {
		r.at = at
		return r.show(t)
	})
	return r, nil
}

type movedReader[K comparable, T any] struct{ iterReader[K, T] }

func (*movedReader[K, T]) output(bool) error { return nil }

// also makes the reader call do with each thing before rows are made from it.
func (r *gatherReader[K, T, C, R]) also(do func(*T, time.Time) error) {
	gather := r.moved
	r.moved = func(t *T) error {
		if err := do(t, r.at); err != nil {
			return err
		}
		return gather(t)
	}
}
