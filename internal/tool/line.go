// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"seine/internal/kern"
)

// A line shows the events of all tools of an engine in the order of the ring. The tools have one
// feed. The session whose goroutine is woken takes the records and shows them for all sessions
// that wait for events. So the order of rows does not depend on which goroutine runs first.
//
// A session that is busy with an output, a walk for example, does not wait for events. Its
// records are put aside, and it shows them afterwards. So it does not delay the others.
type line struct {
	feed *feed // of all tools

	mu       sync.Mutex // guards the rest, and the linePlace of each session
	sessions []*Session // by their numbers in the ring; nil: the number is free
	records  []byte     // of the feed, that were taken last
	rest     []byte     // of these, records that have not been shown
	taken    uint64     // how often records were taken from the feed
	finished uint64     // how many of these times all of them have been shown
}

// A linePlace is what a line knows of a session.
type linePlace struct {
	waits  bool          // for events: others may show its records
	shown  bool          // some of its records were shown since the last End
	aside  []byte        // records that came while it was busy, as in a feed
	failed error         // of its sink; no more records are shown
	wake   chan struct{} // holds a token when it has failed
}

func newLine() *line { return &line{feed: newFeed(0)} }

// join makes the records of a number go to s.
func (l *line) join(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.sessions) <= int(s.id) {
		l.sessions = append(l.sessions, nil)
	}
	s.place.wake = make(chan struct{}, 1)
	l.sessions[s.id] = s
}

// leave frees the number of s.
func (l *line) leave(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[s.id] = nil
}

// wait says that s waits for events.
func (l *line) wait(s *Session) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.catchUp(s)
	l.end(s)
	s.place.waits = true
}

// busy says that s does something else: nobody else calls its sink from now on.
func (l *line) busy(s *Session) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.place.waits = false
}

// brief calls f, which calls the sink of a session that waits and takes little time. All events
// wait for it.
func (l *line) brief(f func() error) error {
	if l == nil {
		return f()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

// lineStep is how many bytes of records are shown before other sessions may come back to the
// line. It is a millisecond or so, in which few records of theirs are put aside.
const lineStep = 32 << 10

// consume shows the events that have been read until now: those of s, and of all sessions that
// wait. Then s waits for more.
func (l *line) consume(s *Session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.catchUp(s)
	s.place.waits, s.place.shown = true, true
	// What is in the feed now is taken the next time at the latest.
	for until := l.taken + 1; l.finished < until; {
		if err := l.step(); err != nil {
			return err
		}
		l.mu.Unlock() // others may come back
		l.mu.Lock()
	}
	return s.place.failed
}

// step shows some records.
func (l *line) step() (err error) {
	if len(l.rest) == 0 {
		if l.records, err = l.feed.take(l.records); err != nil {
			token(l.feed.ready) // for the next session
			return fmt.Errorf("ring: %w", err)
		}
		l.rest = l.records
		l.taken++
	}
	some := 0
	for some < len(l.rest) && some < lineStep {
		some += 4 + int(binary.NativeEndian.Uint32(l.rest[some:]))
	}
	each(l.rest[:some], func(raw []byte) error {
		l.show(raw)
		return nil
	})
	if l.rest = l.rest[some:]; len(l.rest) > 0 {
		return nil
	}
	l.finished = l.taken
	for _, s := range l.sessions {
		if s != nil && s.place.waits {
			l.end(s)
		}
	}
	return nil
}

// show shows a record, or puts it aside.
func (l *line) show(raw []byte) {
	id := toolOf(raw)
	if id >= len(l.sessions) || l.sessions[id] == nil {
		return // it has left
	}
	s := l.sessions[id]
	if s.place.waits {
		s.take(raw)
		return
	}
	s.place.aside = binary.NativeEndian.AppendUint32(s.place.aside, uint32(len(raw)))
	s.place.aside = append(s.place.aside, raw...)
}

// catchUp shows the records of s that were put aside.
func (l *line) catchUp(s *Session) {
	if len(s.place.aside) == 0 {
		return
	}
	each(s.place.aside, func(raw []byte) error {
		s.take(raw)
		return nil
	})
	if s.place.aside = s.place.aside[:0]; cap(s.place.aside) > keepMost {
		s.place.aside = nil
	}
}

// end closes the batch of events of a session.
func (l *line) end(s *Session) {
	if s.place.shown && s.place.failed == nil {
		s.fail(s.endBatch())
	}
	s.place.shown = false
}

// take shows a record, unless one before it failed.
func (s *Session) take(raw []byte) {
	s.place.shown = true
	if s.place.failed == nil {
		s.fail(s.dispatch(raw))
	}
}

// fail ends the session if err is one.
func (s *Session) fail(err error) {
	if err != nil {
		s.place.failed = err
		token(s.place.wake)
	}
}

// toolOf is the number of the tool that a record is of.
func toolOf(raw []byte) int {
	var head kern.Head
	if at := int(unsafe.Offsetof(head.Tool)); len(raw) >= at+2 {
		return int(binary.NativeEndian.Uint16(raw[at:]))
	}
	return 0
}
