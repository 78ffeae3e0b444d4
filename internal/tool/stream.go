// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Stream is the Output of a view that shows things as they happen: one T for
// each event. T begins with kern.Head.
type Stream[T any] struct {
	Type string // the C struct of which T is the twin
	// Each may change the cells of a row where tags do not say enough; nil: as
	// the tags say. Bytes of the row are what the record has behind its T.
	Each func(*T, *row.Row)
	// Late finds operations that do not end, for rows about them; nil: none.
	Late Late[T]
	// Notices takes records that are not rows; nil: there are none.
	Notices Notices
	// Repeat joins events that say the same; its zero value joins none.
	Repeat Repeat[T]
}

// Kind is Events.
func (Stream[T]) Kind() Kind { return Events }

// Schema is made of T's tags.
func (Stream[T]) Schema() (*row.Schema, error) { return row.SchemaOf(reflect.TypeFor[T]()) }

// Check compares T with the C struct.
func (s Stream[T]) Check(spec *ebpf.CollectionSpec) error {
	if s.Late != nil {
		if err := s.Late.check(spec); err != nil {
			return err
		}
	}
	if s.Notices != nil {
		if err := s.Notices.check(spec); err != nil {
			return err
		}
	}
	return checkType(spec, reflect.TypeFor[T](), s.Type)
}

func (s Stream[T]) open(ses *Session, _ *View, i int) (reader, error) {
	schema := ses.schemas[i]
	r := &streamReader[T]{ses: ses, row: schema.New(), each: s.Each, late: s.Late, notices: s.Notices, pid: schema.Index("pid")}
	if s.Repeat.Key != nil {
		r.repeats = &repeats[T]{Repeat: s.Repeat, held: map[any]*repeated[T]{}}
	}
	for _, id := range []string{"uid", "cgroup", "container"} {
		if i := schema.Index(id); i >= 0 {
			r.whose = append(r.whose, i)
		}
	}
	return r, nil
}

type streamReader[T any] struct {
	ses     *Session
	row     *row.Row
	each    func(*T, *row.Row)
	late    Late[T]
	notices Notices
	repeats *repeats[T] // nil: none are joined
	pid     int         // column
	whose   []int       // columns that say nothing when the process is unknown
	value   T           // the record, copied here so that it is aligned
}

func (r *streamReader[T]) event(raw []byte) error {
	size := int(unsafe.Sizeof(r.value))
	if len(raw) < size {
		r.ses.undecodable.Add(1)
		return nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.value)), size), raw)
	if r.repeats != nil && !r.repeats.take(&r.value, time.Now()) {
		return nil
	}
	r.row.Bytes = raw[size:]
	return r.show(&r.value)
}

func (r *streamReader[T]) notice(raw []byte) {
	if r.notices != nil {
		r.notices.take(raw)
	}
}

// tick shows what is overdue, and what has waited to be joined with others.
func (r *streamReader[T]) tick() error {
	if r.repeats != nil {
		if err := r.repeats.due(time.Now(), false, r.show); err != nil {
			return err
		}
	}
	if r.late == nil {
		return nil
	}
	return r.late.due(r.ses, r.show)
}

func (r *streamReader[T]) polls() bool {
	return r.late != nil || r.repeats != nil && len(r.repeats.held) > 0
}

func (r *streamReader[T]) show(t *T) error {
	r.row.Schema.Fill(r.row, unsafe.Pointer(t))
	if r.pid >= 0 && r.row.Cells[r.pid].Kind == row.Null {
		for _, i := range r.whose {
			r.row.Cells[i] = row.Cell{}
		}
	}
	if r.each != nil {
		r.each(t, r.row)
	}
	return r.ses.show(r.row)
}

// output shows what has waited to be joined: it happened before this output.
func (r *streamReader[T]) output(bool) error {
	if r.repeats == nil {
		return nil
	}
	return r.repeats.due(time.Now(), true, r.show)
}

// noEvents is for readers that take nothing from the ring.
type noEvents struct{}

func (noEvents) event(raw []byte) error {
	return fmt.Errorf("a record of %d bytes for a view that takes none", len(raw))
}
