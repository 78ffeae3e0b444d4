// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Poll is the Output of a view that no program feeds. It shows the kernel's own counters, read by
// Go, beside what was traced. Each output covers the time since the one before.
type Poll[T any] struct {
	// Open reads the counters when everything is attached and privileges are still there. The
	// function that it returns gives the rows of each output without privileges; last says
	// that this is the end.
	Open func(*Session) (next func(last bool) ([]T, error), err error)
}

// polled is one row of a Poll.
type polled[T any] struct {
	Time wall `col:"time,width=8" help:"end of the interval"`
	Val  T    `col:",inline"`
}

// Kind is Counting.
func (Poll[T]) Kind() Kind { return Counting }

// Schema is made of T's tags.
func (Poll[T]) Schema() (*row.Schema, error) { return row.SchemaOf(reflect.TypeFor[polled[T]]()) }

// Check has nothing to compare.
func (Poll[T]) Check(*ebpf.CollectionSpec) error { return nil }

func (p Poll[T]) open(ses *Session, v *View, i int) (reader, error) {
	if shown := ses.opts.View; shown != "" && shown != v.Name {
		return &pollReader[T]{}, nil
	}
	next, err := p.Open(ses)
	return &pollReader[T]{ses: ses, row: ses.schemas[i].New(), next: next}, err
}

type pollReader[T any] struct {
	noEvents
	ses  *Session
	row  *row.Row
	next func(last bool) ([]T, error) // nil: the view is not shown
}

func (r *pollReader[T]) output(last bool) error {
	if r.next == nil {
		return nil
	}
	vals, err := r.next(last)
	if err != nil {
		return err
	}
	p := polled[T]{Time: wall(time.Now().UnixNano())}
	for _, p.Val = range vals {
		r.row.Schema.Fill(r.row, unsafe.Pointer(&p))
		if err := r.ses.show(r.row); err != nil {
			return err
		}
	}
	return nil
}
