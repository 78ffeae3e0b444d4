// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Exists is the Output of a view that shows what exists at the time of an output: a T for each
// thing that Read finds. A tool that has it may be a Once.
type Exists[K comparable, T any] struct {
	Type string // the C struct of which T is the twin
	// Read hands on a record, or several, of each thing, from BPF iterators or elsewhere.
	// Records are copied.
	Read func(s *Session, add func(*T)) error
	// Key tells which records are of the same thing. The first of them is shown.
	Key func(*T) K
	// Again is told of each further record of a thing.
	Again func(have, again *T)
	// Whole may fill in values that need all things, in the order in which they were read. The
	// function that it returns may change the cells of a row; if it returns false there is no row.
	Whole func([]*T) func(*T, *row.Row) bool
	// Same tells whether a thing is the one that the output before had under its key. Only an
	// Exists that has Compare needs it.
	Same func(before, now *T) bool
	// Compare is called from the second output on, for each thing of this output and of the one before. before is nil
	// if the thing is new, now is nil if it has gone. seen is how long ago an output first showed it. It may fill in
	// values, and returns what to show: nil is nothing. Without Compare, all things of an output are shown.
	Compare func(before, now *T, seen time.Duration) *T
}

// Kind is Interval.
func (Exists[K, T]) Kind() Kind { return Interval }

// Schema is made of T's tags.
func (Exists[K, T]) Schema() (*row.Schema, error) { return row.SchemaOf(reflect.TypeFor[T]()) }

// Check compares T with the C struct.
func (e Exists[K, T]) Check(spec *ebpf.CollectionSpec) error {
	return checkType(spec, reflect.TypeFor[T](), e.Type)
}

func (e Exists[K, T]) open(ses *Session, _ *View, i int) (reader, error) {
	return &existsReader[K, T]{Exists: e, ses: ses, row: ses.schemas[i].New()}, nil
}

type existsReader[K comparable, T any] struct {
	Exists[K, T]
	noEvents
	ses    *Session
	row    *row.Row
	before map[K]sighting[T] // the output before; nil: there was none
	order  []K               // its order
}

// A sighting is a thing, and the time of the first output that showed it.
type sighting[T any] struct {
	t     *T
	first time.Time
}

// compare returns what to show of all things that there are.
func (r *existsReader[K, T]) compare(all []*T, at time.Time) (show []*T) {
	if r.Compare == nil || r.ses.opts.Interval == 0 { // there is one output
		return all
	}
	put := func(before, now *T, seen time.Duration) {
		if t := r.Compare(before, now, seen); t != nil {
			show = append(show, t)
		}
	}
	now, order := make(map[K]sighting[T], len(all)), make([]K, 0, len(all))
	for _, t := range all {
		k := r.Key(t)
		s, known := r.before[k]
		was := s.t
		if !known || !r.Same(was, t) {
			s.first, was = at, nil
		} else {
			delete(r.before, k)
		}
		now[k], order = sighting[T]{t, s.first}, append(order, k)
		if r.order == nil {
			show = append(show, t)
			continue
		}
		put(was, t, at.Sub(s.first))
	}
	for _, k := range r.order {
		if s, gone := r.before[k]; gone {
			put(s.t, nil, at.Sub(s.first))
		}
	}
	r.before, r.order = now, order
	return show
}

func (r *existsReader[K, T]) output(bool) error {
	var all []*T
	var room []T          // for further copies: one by one they would cost twice as much
	seen := map[K]int32{} // indices: the collector does not scan a map without pointers
	err := r.Read(r.ses, func(t *T) {
		k := r.Key(t)
		if i, known := seen[k]; known {
			r.Again(all[i], t)
			return
		}
		if len(room) == 0 {
			room = make([]T, min(len(all)+16, 256))
		}
		seen[k] = int32(len(all))
		room[0] = *t
		all, room = append(all, &room[0]), room[1:]
	})
	if err != nil {
		return err
	}
	at := time.Now()
	each := r.Whole(all)
	moment := r.row.Get("time")
	for _, t := range r.compare(all, at) {
		r.row.Schema.Fill(r.row, unsafe.Pointer(t))
		if moment != nil {
			*moment = row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
		}
		if !each(t, r.row) {
			continue
		}
		if err := r.ses.show(r.row); err != nil {
			return err
		}
	}
	return nil
}
