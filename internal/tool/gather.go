// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"errors"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Gather is the Output of a view whose rows each combine many things. An R is made from the
// changes of Ts, which come from a walk and from events as in an Iter, and from Cs, which
// programs counted under a number that Ts have too.
type Gather[K comparable, T, C, R any] struct {
	Iter[K, T]
	// Map is made by COUNT_MAP: Cs by numbers of 64 bits.
	Map string
	// Rows makes the rows of an output, which covers so much time.
	Rows func(span time.Duration, moved []T, counted map[uint64]*C) []R
}

// Schema is made of R's tags.
func (Gather[K, T, C, R]) Schema() (*row.Schema, error) {
	return row.SchemaOf(reflect.TypeFor[polled[R]]())
}

// Check compares T and C with the C structs.
func (s Gather[K, T, C, R]) Check(spec *ebpf.CollectionSpec) error {
	m := spec.Maps[s.Map]
	if m == nil || spec.Maps[s.Map+odd] == nil || m.KeySize != 8 {
		return errors.New("map " + s.Map + ": not made by COUNT_MAP, with numbers of 64 bits")
	}
	return errors.Join(s.Iter.Check(spec), isStruct(reflect.TypeFor[C](), m.Value))
}

func (s Gather[K, T, C, R]) mapName() string { return s.Map }

func (s Gather[K, T, C, R]) open(ses *Session, _ *View, i int) (reader, error) {
	r := &gatherReader[K, T, C, R]{iterReader: iterReader[K, T]{Iter: s.Iter, ses: ses, row: ses.schemas[i].New()}, name: s.Map, rows: s.Rows, since: time.Now()}
	r.moved = func(t *T) error {
		r.things = append(r.things, *t)
		return nil
	}
	return r, r.begin()
}

type gatherReader[K comparable, T, C, R any] struct {
	iterReader[K, T]
	name   string // of the map
	rows   func(time.Duration, []T, map[uint64]*C) []R
	since  time.Time
	things []T // of this output
}

func (r *gatherReader[K, T, C, R]) output(last bool) error {
	if err := r.iterReader.output(last); err != nil {
		return err
	}
	counted := map[uint64]*C{}
	err := Take(r.ses.Maps[r.name+r.ses.turned], func(key, value []byte) error {
		c := new(C)
		fill(c, value)
		counted[binary.NativeEndian.Uint64(key)] = c
		return nil
	})
	if err != nil {
		return err
	}
	made := r.rows(r.at.Sub(r.since), r.things, counted)
	r.things, r.since = again(r.things), r.at
	p := polled[R]{Time: wall(r.at.UnixNano())}
	for _, p.Val = range made {
		r.row.Schema.Fill(r.row, unsafe.Pointer(&p))
		if err := r.ses.show(r.row); err != nil {
			return err
		}
	}
	return nil
}
