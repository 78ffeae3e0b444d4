// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Stream is the Output of a view that shows things as they happen: one T for
// each event. T begins with kern.Head.
type Stream[T any] struct {
	Type string // the C struct of which T is the twin
	// Each may change the cells of a row where tags do not say enough; nil: as
	// the tags say.
	Each func(*T, *row.Row)
}

// Kind is Events.
func (Stream[T]) Kind() Kind { return Events }

// Schema is made of T's tags.
func (Stream[T]) Schema() (*row.Schema, error) { return row.SchemaOf(reflect.TypeFor[T]()) }

// Check compares T with the C struct.
func (s Stream[T]) Check(spec *ebpf.CollectionSpec) error {
	return checkType(spec, reflect.TypeFor[T](), s.Type)
}

func (s Stream[T]) open(ses *Session, _ *View, i int) (reader, error) {
	return &streamReader[T]{ses: ses, row: ses.schemas[i].New(), each: s.Each}, nil
}

type streamReader[T any] struct {
	ses   *Session
	row   *row.Row
	each  func(*T, *row.Row)
	value T // the record, copied here so that it is aligned
}

func (r *streamReader[T]) event(raw []byte) error {
	size := int(unsafe.Sizeof(r.value))
	if len(raw) < size {
		r.ses.report.Undecodable++
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.value)), size), raw)
	r.row.Schema.Fill(r.row, unsafe.Pointer(&r.value))
	if r.each != nil {
		r.each(&r.value, r.row)
	}
	return r.ses.sink.Row(r.row)
}

func (r *streamReader[T]) output(bool) error { return nil }

// noEvents is for readers that take nothing from the ring.
type noEvents struct{}

func (noEvents) event(raw []byte) error {
	return fmt.Errorf("a record of %d bytes for a view that takes none", len(raw))
}
