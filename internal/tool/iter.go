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
	at    time.Time // end of the tick: the time of all its rows, also of things that ended before
	prev  map[K]T   // as of the last tick
	away  map[K]int // ticks since a thing was last walked over, if it has not ended
	ended []T       // since the last tick
	eve   map[K]T   // as of the walk before the programs were detached

	moved func(*T) error // takes what Diff has left
}

// begin remembers the values of the counters before the first tick, so that they do not count.
func (r *iterReader[K, T]) begin() (err error) {
	r.away = map[K]int{}
	r.prev, err = r.walk()
	return err
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
func (r *iterReader[K, T]) detaching() (err error) {
	r.eve, err = r.walk()
	return err
}

// walk is what exists.
func (r *iterReader[K, T]) walk() (map[K]T, error) {
	found := make(map[K]T, len(r.prev))
	return found, Iterate(r.ses, r.Point, func(t *T) { found[r.Key(t)] = *t })
}

func (r *iterReader[K, T]) output(bool) error {
	now, err := r.walk()
	if err != nil {
		return err
	}
	for k, t := range r.eve {
		if _, there := now[k]; !there {
			now[k] = t
		}
	}
	r.at = time.Now()
	for _, t := range r.ended {
		// It may have been walked in the moment before it ended.
		delete(now, r.Key(&t))
		if err := r.diff(t); err != nil {
			return err
		}
		delete(r.prev, r.Key(&t))
		delete(r.away, r.Key(&t))
	}
	r.ended = r.ended[:0]
	for _, t := range now {
		if err := r.diff(t); err != nil {
			return err
		}
	}
	r.remember(now)
	return nil
}

// awayTicks is how long a thing that is not walked over is taken to be there.
const awayTicks = 1000

// remember makes now the last tick. A thing that is neither in it nor has ended is out of sight,
// such as a socket that its program closed and the kernel still drains. What it has moved until
// now must not count again at its end.
func (r *iterReader[K, T]) remember(now map[K]T) {
	for k := range r.away {
		if _, back := now[k]; back {
			delete(r.away, k)
		}
	}
	for k, t := range r.prev {
		if _, walked := now[k]; walked {
			continue
		}
		if r.away[k]++; r.away[k] > awayTicks {
			delete(r.away, k)
			continue
		}
		now[k] = t
	}
	r.prev = now
}

// diff hands on what happened to t since the last tick.
func (r *iterReader[K, T]) diff(t T) error {
	var prev *T
	if p, ok := r.prev[r.Key(&t)]; ok {
		prev = &p
	}
	if !r.Diff(prev, &t) {
		return nil
	}
	return r.moved(&t)
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
