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
	ses *Session
	row *row.Row
}

func (r *existsReader[K, T]) output(bool) error {
	var all []*T
	seen := map[K]*T{}
	err := r.Read(r.ses, func(t *T) {
		k := r.Key(t)
		if have := seen[k]; have != nil {
			r.Again(have, t)
			return
		}
		one := *t
		seen[k] = &one
		all = append(all, &one)
	})
	if err != nil {
		return err
	}
	at := time.Now()
	each := r.Whole(all)
	for _, t := range all {
		r.row.Schema.Fill(r.row, unsafe.Pointer(t))
		if c := r.row.Get("time"); c != nil {
			*c = row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
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
