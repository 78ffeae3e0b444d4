// SPDX-License-Identifier: Apache-2.0

package row

import (
	"errors"
	"iter"
	"time"
)

// A Replay is a Merge of sources that are read, not run: it takes the oldest of the rows that
// the sources have next, and then reads that source on. The order does not depend on how fast
// each source is read.
//
// Rows of one source may be a little out of order too, as they were live. So a row waits until
// all sources are later by wait.
type Replay struct {
	next    Sink
	wait    time.Duration
	late    time.Duration
	sources []*ReplaySource
	waiting waitingRows
	at      time.Time
	now     func() time.Time
}

// replayMost is how many rows wait at the most.
const replayMost = 20000

// NewReplay makes a replay without sources. A source that is idle may still bring rows
// that are not older than late.
func NewReplay(next Sink, wait, late time.Duration) *Replay {
	return &Replay{next: next, wait: wait, late: late, now: time.Now}
}

// A ReplaySource is where the rows of one source go in.
type ReplaySource struct {
	// Play reads the source and hands its rows to the ReplaySource until there are no more. It
	// has to return when it is told Done.
	Play func() error

	now   func() time.Time
	read  func() (replayed, bool)
	yield func(replayed) bool
	head  replayed
	ended bool
	err   error
}

// replayed is a row, losses, or that there is nothing more for now.
type replayed struct {
	row *Row // valid until the source is read on
	end *End
	at  time.Time
}

func (h *replayed) idle() bool { return h.row == nil && h.end == nil }

// Source makes one more source.
func (m *Replay) Source() *ReplaySource {
	s := &ReplaySource{now: func() time.Time { return m.now() }}
	m.sources = append(m.sources, s)
	return s
}

// Row takes a row.
func (s *ReplaySource) Row(r *Row) error {
	h := replayed{row: r, at: s.head.at}
	if c := r.Get("time"); c != nil && c.Kind == Time {
		h.at = time.Unix(0, int64(c.N))
	}
	return s.hand(h)
}

// End takes losses. It does not hand on the ends of outputs and of the run: other sources may
// still have rows.
func (s *ReplaySource) End(e End) error {
	if e.Losses == nil {
		return nil
	}
	h := replayed{end: &End{Time: e.Time, Tool: e.Tool, Losses: e.Losses}, at: e.Time}
	if !s.head.at.IsZero() { // losses are noticed late, and must not hold up rows
		h.at = s.head.at
	}
	return s.hand(h)
}

// Idle says that there is nothing more for now.
func (s *ReplaySource) Idle() error { return s.hand(replayed{at: s.now()}) }

func (s *ReplaySource) hand(h replayed) error {
	if s.yield == nil { // nobody reads any more
		return Done
	}
	if !s.yield(h) {
		s.yield = nil
		return Done
	}
	return nil
}

// start has the source wait in front of its first row.
func (s *ReplaySource) start() (stop func()) {
	s.read, stop = iter.Pull(func(yield func(replayed) bool) {
		s.yield = yield
		s.err = s.Play()
		s.yield = nil
	})
	return stop
}

// advance reads the next row.
func (s *ReplaySource) advance() {
	head, more := s.read()
	s.head, s.ended = head, !more
}

// Now is the time of the row that was handed on last.
func (m *Replay) Now() time.Time { return m.at }

// Run reads all sources to their ends, and ends the sink.
func (m *Replay) Run() (err error) {
	for _, s := range m.sources {
		defer s.start()()
		s.advance()
	}
	for err == nil {
		s := m.oldest()
		if s == nil {
			break
		}
		until := m.frontier(s)
		if s.head.idle() { // so are all others
			if err = m.hand(until); err == nil {
				err = m.next.End(End{Time: m.now()})
			}
			for _, s := range m.sources {
				if err == nil && !s.ended {
					s.advance()
				}
			}
			continue
		}
		if err = m.hand(until); err == nil {
			err = m.take(&s.head)
			s.advance()
		}
	}
	if err == nil {
		err = m.hand(time.Time{})
	}
	errs := []error{}
	for _, s := range m.sources {
		if s.err != nil && !errors.Is(s.err, Done) {
			errs = append(errs, s.err)
		}
	}
	if err == nil || err == Done {
		err = m.next.End(End{Time: m.at, Output: err == nil, Last: true})
		if err == Done {
			err = nil
		}
	}
	return errors.Join(append(errs, err)...)
}

// oldest is the source whose row is to come next; nil: all have ended.
func (m *Replay) oldest() (oldest *ReplaySource) {
	for _, s := range m.sources {
		switch {
		case s.ended:
		case oldest == nil, oldest.head.idle() && !s.head.idle(), !s.head.idle() && s.head.at.Before(oldest.head.at):
			oldest = s
		}
	}
	return oldest
}

// frontier is a time before which no source has rows any more, if s has the oldest one.
func (m *Replay) frontier(s *ReplaySource) (at time.Time) {
	if !s.head.idle() {
		at = s.head.at.Add(-m.wait)
	}
	for _, s := range m.sources {
		if idle := s.head.at.Add(-m.late); !s.ended && s.head.idle() && (at.IsZero() || idle.Before(at)) {
			at = idle
		}
	}
	return at
}

// take has a row wait, or hands on losses.
func (m *Replay) take(h *replayed) error {
	if h.end != nil {
		return m.next.End(*h.end)
	}
	m.waiting.put(h.row, h.at)
	return nil
}

// hand hands on rows that are not later than until; zero: all.
func (m *Replay) hand(until time.Time) error {
	for m.waiting.len() > 0 && (until.IsZero() || !m.waiting.oldest().After(until) || m.waiting.len() > replayMost) {
		r := m.waiting.take()
		m.at = r.at
		if err := m.next.Row(&r.row); err != nil {
			return err
		}
		m.waiting.done(r)
	}
	return nil
}
