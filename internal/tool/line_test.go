// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"seine/internal/kern"
	"seine/internal/row"
)

// lineSink counts the ends of batches.
type lineSink struct{ ends int }

func (*lineSink) Row(*row.Row) error  { return nil }
func (s *lineSink) End(row.End) error { s.ends++; return nil }

// lineReader keeps the times of its events in a list that all sessions share.
type lineReader struct {
	shown *[]uint64
	fails error
}

func (r *lineReader) event(raw []byte) error {
	*r.shown = append(*r.shown, binary.NativeEndian.Uint64(raw))
	return r.fails
}

func (*lineReader) output(bool) error { return nil }

// lineOf makes a line of so many sessions that show events in one list.
func lineOf(n int) (l *line, all []*Session, shown *[]uint64) {
	l, shown = newLine(), &[]uint64{}
	for i := range n {
		s := &Session{id: uint16(i), line: l, feed: l.feed, sink: &lineSink{}, readers: []reader{&lineReader{shown: shown}}}
		l.join(s)
		all = append(all, s)
	}
	return l, all, shown
}

// handTo hands over an event of a tool.
func handTo(l *line, tool int, ts uint64) {
	head := kern.Head{TS: kern.Mono(ts), Tool: uint16(tool)}
	l.feed.add(unsafe.Slice((*byte)(unsafe.Pointer(&head)), unsafe.Sizeof(head)))
	l.feed.hand()
}

// TestLine: events of all sessions that wait are shown in the order of the ring, by whichever
// session comes first.
func TestLine(t *testing.T) {
	const n, events = 5, 20011
	l, all, shown := lineOf(n)
	var wg sync.WaitGroup
	for _, s := range all {
		l.wait(s)
	}
	over := make(chan struct{})
	for _, s := range all {
		wg.Go(func() {
			for {
				l.wait(s)
				select {
				case <-s.feed.ready:
				case <-over:
					return
				}
				if err := s.consume(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range events {
		handTo(l, i*i%n, uint64(i))
	}
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late); time.Sleep(time.Millisecond) {
		if l.mu.Lock(); len(*shown) == events {
			l.mu.Unlock()
			break
		}
		l.mu.Unlock()
	}
	close(over)
	wg.Wait()
	if len(*shown) != events || !slices.IsSorted(*shown) {
		t.Errorf("%d events were shown, want %d in order", len(*shown), events)
	}
	for i, s := range all {
		if s.sink.(*lineSink).ends == 0 && s.events.Load() > 0 {
			t.Errorf("no batch of session %d has an end", i)
		}
	}
}

// TestLineBusy: events of a session that is busy wait for it, in order. Those of others do not.
func TestLineBusy(t *testing.T) {
	l, all, shown := lineOf(3)
	l.wait(all[1]) // session 0 comes, 1 waits, 2 is busy
	for i := range 12 {
		handTo(l, i%3, uint64(i))
	}
	if err := all[0].consume(); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{0, 1, 3, 4, 6, 7, 9, 10}; !slices.Equal(*shown, want) {
		t.Errorf("shown %v while a session is busy, want %v", *shown, want)
	}
	for i, want := range []int{1, 1, 0} {
		if got := all[i].sink.(*lineSink).ends; got != want {
			t.Errorf("session %d: %d ends of a batch, want %d", i, got, want)
		}
	}
	*shown = nil
	handTo(l, 2, 12)
	if err := all[2].consume(); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{2, 5, 8, 11, 12}; !slices.Equal(*shown, want) {
		t.Errorf("shown %v afterwards, want %v", *shown, want)
	}
	// A number that is free has no session.
	l.leave(all[1])
	*shown = nil
	handTo(l, 1, 13)
	handTo(l, 0, 14)
	if err := all[2].consume(); err != nil || !slices.Equal(*shown, []uint64{14}) {
		t.Errorf("shown %v, %v; want 14", *shown, err)
	}
}

// TestLineFails: an error is that of the session whose sink returns it, whoever calls it.
func TestLineFails(t *testing.T) {
	l, all, shown := lineOf(2)
	broken := errors.New("broken")
	all[1].readers[0].(*lineReader).fails = broken
	l.wait(all[1])
	for i := range 4 {
		handTo(l, i%2, uint64(i))
	}
	if err := all[0].consume(); err != nil {
		t.Errorf("session 0: %v", err)
	}
	if want := []uint64{0, 1, 2}; !slices.Equal(*shown, want) {
		t.Errorf("shown %v, want %v: nothing of session 1 after its error", *shown, want)
	}
	select {
	case <-all[1].place.wake:
	default:
		t.Error("session 1 was not woken")
	}
	if err := all[1].consume(); err != broken {
		t.Errorf("session 1: %v, want %v", err, broken)
	}
	l.feed.close(broken)
	for i, s := range all { // each hears of it
		<-s.feed.ready
		if err := s.consume(); !errors.Is(err, broken) {
			t.Errorf("session %d: %v, want %v", i, err, broken)
		}
	}
}
