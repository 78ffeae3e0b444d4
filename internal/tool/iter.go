// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/row"
)

// Iter is the Output of a view that shows what exists, at each tick: one T for
// each record that the BPF iterator of point Point writes. What ended between
// two ticks comes as a T through the ring, so that nothing short-lived is missed.
type Iter[K comparable, T any] struct {
	Point string
	Type  string // the C struct of which T is the twin
	// Key tells which T of this tick and which of the last are the same thing.
	Key func(*T) K
	// Diff turns cur, whose counters run since the beginning, into what
	// happened since prev (nil for a thing not seen before); false: no row.
	Diff func(prev, cur *T) bool
	// Keep may change next, which is prev at the next tick, after Diff made shown from it. So
	// what was shown of a thing is forgotten together with the thing. nil: next stays as it was
	// read.
	Keep func(prev, shown, next *T)
	// Each may change the cells of a row where tags do not say enough; nil: as
	// the tags say.
	Each func(*T, *row.Row)
}

// Kind is Interval.
func (Iter[K, T]) Kind() Kind { return Interval }

// Schema is made of T's tags.
func (Iter[K, T]) Schema() (*row.Schema, error) { return row.SchemaOf(reflect.TypeFor[T]()) }

// Check compares T with the C struct.
func (s Iter[K, T]) Check(spec *ebpf.CollectionSpec) error {
	return checkType(spec, reflect.TypeFor[T](), s.Type)
}

func (s Iter[K, T]) open(ses *Session, _ *View, i int) (reader, error) {
	r := &iterReader[K, T]{Iter: s, ses: ses, row: ses.schemas[i].New()}
	r.moved = r.show
	return r, r.begin()
}

type iterReader[K comparable, T any] struct {
	Iter[K, T]
	ses   *Session
	row   *row.Row
	at    time.Time    // end of the tick: the time of all its rows, also of things that ended before
	prev  things[K, T] // as of the last tick
	now   things[K, T] // as of this one, during it
	eve   things[K, T] // as of the walk before the programs were detached
	away  map[K]int    // ticks since a thing was last walked over, if it has not ended
	ended []T          // since the last tick

	was, is T              // what Diff is given
	moved   func(*T) error // takes what Diff has left
}

// begin remembers the values of the counters before the first tick, so that they do not count.
func (r *iterReader[K, T]) begin() error {
	r.away = map[K]int{}
	return r.walk(&r.prev)
}

func (r *iterReader[K, T]) event(raw []byte) error {
	var t T
	if !decode(&t, raw) {
		r.ses.undecodable.Add(1)
		return nil
	}
	r.ended = append(r.ended, t)
	return nil
}

// detaching walks once more while the programs are attached. A thing that ends after that sends
// no event, and the last walk does not find it.
func (r *iterReader[K, T]) detaching() error { return r.walk(&r.eve) }

// walk finds what exists.
func (r *iterReader[K, T]) walk(into *things[K, T]) error {
	into.reset()
	return Iterate(r.ses, r.Point, func(t *T) { into.put(r.Key(t), t) })
}

func (r *iterReader[K, T]) output(bool) error {
	if err := r.walk(&r.now); err != nil {
		return err
	}
	for k, i := range r.eve.at {
		if r.now.get(k) == nil {
			r.now.put(k, &r.eve.all[i])
		}
	}
	r.at = time.Now()
	return r.changes()
}

// changes hands on what happened to the things that have ended and to those of now.
func (r *iterReader[K, T]) changes() error {
	for i := range r.ended {
		t := &r.ended[i]
		k := r.Key(t)
		// It may have been walked in the moment before it ended.
		r.now.delete(k)
		if err := r.diff(k, t); err != nil {
			return err
		}
		r.prev.delete(k)
		delete(r.away, k)
	}
	r.ended = again(r.ended)
	for k, i := range r.now.at {
		if err := r.diff(k, &r.now.all[i]); err != nil {
			return err
		}
	}
	r.remember()
	return nil
}

// awayTicks is how long a thing that is not walked over is taken to be there.
const awayTicks = 1000

// remember makes this tick the last one. A thing that is neither in it nor has ended is out of sight,
// such as a socket that its program closed and the kernel still drains. What it has moved until
// now must not count again at its end. If its end was lost in the ring, which counts that, it is
// forgotten after awayTicks.
func (r *iterReader[K, T]) remember() {
	for k := range r.away {
		if r.now.get(k) != nil {
			delete(r.away, k)
		}
	}
	for k, i := range r.prev.at {
		if r.now.get(k) != nil {
			continue
		}
		if r.away[k]++; r.away[k] > awayTicks {
			delete(r.away, k)
			continue
		}
		r.now.put(k, &r.prev.all[i])
	}
	r.prev, r.now = r.now, r.prev
}

// diff hands on what happened to t since the last tick.
func (r *iterReader[K, T]) diff(k K, t *T) error {
	var prev *T
	if p := r.prev.get(k); p != nil {
		r.was = *p
		prev = &r.was
	}
	r.is = *t
	shown := r.Diff(prev, &r.is)
	if r.Keep != nil {
		r.Keep(prev, &r.is, t)
	}
	if !shown {
		return nil
	}
	return r.moved(&r.is)
}

func (r *iterReader[K, T]) show(t *T) error {
	r.row.Schema.Fill(r.row, unsafe.Pointer(t))
	if c := r.row.Get("time"); c != nil {
		*c = row.Cell{Kind: row.Time, N: uint64(r.at.UnixNano())}
	}
	if r.Each != nil {
		r.Each(t, r.row)
	}
	return r.ses.show(r.row)
}

// Iterates says whether the BPF iterator of an optional point is there.
func (s *Session) Iterates(point string) bool { return len(s.set.Iters[point]) > 0 }

// Iterate runs the BPF iterator of a point and hands each record to do.
func Iterate[T any](s *Session, point string, do func(*T)) error {
	its := s.set.Iters[point]
	if len(its) == 0 {
		return fmt.Errorf("point %s: not an iterator", point)
	}
	f, err := its[0].Open()
	if err != nil {
		return fmt.Errorf("point %s: %w", point, err)
	}
	defer f.Close()
	var t T
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&t)), unsafe.Sizeof(t))
	for in := bufio.NewReaderSize(f, 64<<10); ; {
		if _, err := io.ReadFull(in, raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("point %s: %w", point, err)
		}
		do(&t)
	}
}

func decode[T any](t *T, raw []byte) bool {
	size := int(unsafe.Sizeof(*t))
	if len(raw) < size {
		return false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(t)), size), raw)
	return true
}
