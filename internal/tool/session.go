// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
)

// A Session is one run of a tool. Run is called once; Stats and Close may be called by
// others meanwhile.
type Session struct {
	Maps    map[string]*ebpf.Map
	Choices []probe.Choice
	Notes   []string // of the tool's Look

	engine  *Engine
	opts    Options
	set     *probe.Set
	owners  *table // that it shares with others; nil: it has its own, or needs none
	before  Report // what that had lost before
	relay   *relay // programs that a table calls; nil: all are attached
	views   []View
	schemas []*row.Schema
	readers []reader // of the views
	sink    row.Sink
	feed    *feed
	id      uint16             // of the tool in the ring
	line    *line              // that shows its events; nil: it has a feed of its own
	place   linePlace          // in the line
	hold    *Hold              // keeps events until they are asked for; nil: they are shown as they come
	packets *packets           // that fill the feed in place of the ring; nil: the tool takes none
	asked   chan chan struct{} // for what is in the feed
	records []byte             // of the feed, that were taken last
	taken   uint64             // bytes of the ring
	credit  *ebpf.Variable     // ring_taken, where it is counted
	given   uint64             // what it was set to last
	told    Report             // the losses that were reported already
	onLoss  func(*Report)
	ticks   bool              // more than one output may come
	epochs  epochs            // of the maps of counts
	turned  string            // suffix of the names of those that are being read
	by      []string          // key fields in use
	keyBits map[string]uint64 // bits of key_mask by column
	notice  func(pid uint32)
	late    bool        // programs are attached while it runs
	keeps   []Privilege // the tool's own

	events, rows, undecodable atomic.Uint64

	mu     sync.Mutex // guards the rest, and keeps maps from being closed while they are read
	began  time.Time  // of Run
	unseen []string
	memory uint64  // bytes of maps, with --stats
	ring   uint64  // bytes of the ring, likewise
	last   *Report // when it has ended

	closing sync.Once
}

// drain runs an iterator whose program writes to maps.
func drain(it interface{ Open() (io.ReadCloser, error) }) error {
	f, err := it.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// Close detaches everything. A session that runs is ended by its context instead.
func (s *Session) Close() {
	s.closing.Do(func() {
		s.closeFeed()
		s.set.Detach()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last == nil {
			s.last = s.stats(false)
		}
		s.packets.close()
		s.engine.leave(s)
		s.set.Close()
		s.epochs.close()
	})
}

// Engine is what the session runs in.
func (s *Session) Engine() *Engine { return s.engine }

// Schemas are those of the session's views.
func (s *Session) Schemas() []*row.Schema { return s.schemas }

// Wanted is the session's filters.
func (s *Session) Wanted() *Wanted { return &s.opts.Filter }

// Warn adds a line to the summary: what was not seen, and what to do about it.
func (s *Session) Warn(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = append(s.unseen, text)
}

// OnNotice makes the session call f for each process of which a stack is kept.
func (s *Session) OnNotice(f func(pid uint32)) { s.notice = f }

// Run hands rows to sink until ctx ends, the duration is over or the sink wants
// no more; then it prints what has been gathered, detaches, and reports. The sink is called by
// this goroutine alone, or in an ordered engine by one goroutine at a time.
func (s *Session) Run(ctx context.Context, sink row.Sink) (*Report, error) {
	defer s.Close()
	s.sink = sink
	s.mu.Lock()
	s.began = time.Now()
	s.mu.Unlock()
	err := s.loop(ctx)
	if errors.Is(err, row.Done) {
		err = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.stats(s.opts.Stats)
	return s.last, err
}

// lateEvery is how often views look for things that happen without an event. These are overdue by
// seconds.
const lateEvery = 250 * time.Millisecond

func (s *Session) loop(ctx context.Context) error {
	if s.opts.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Duration)
		defer cancel()
	}
	next := time.Now().Add(s.opts.Interval)
	tick := s.opts.Interval
	if tick == 0 {
		tick = lossTick
	}
	tell := time.Now().Add(tick)
	look := time.Now().Add(lateEvery)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var ack chan struct{}
	answer := func() {
		if ack != nil {
			close(ack)
			ack = nil
		}
	}
	defer answer()
	// Sessions that were started at the same time stay in phase: each wake-up of the process costs.
	after := func(at time.Time, every time.Duration) time.Time {
		late := time.Since(at)
		if late < 0 {
			return at
		}
		return at.Add(late - late%every + every)
	}
	defer s.line.busy(s)
	for ctx.Err() == nil {
		until := tell
		if s.opts.Interval > 0 && next.Before(until) {
			until = next
		}
		s.line.brief(func() error { // others may show its events
			if s.polls() && look.Before(until) {
				until = look
			}
			return nil
		})
		timer.Reset(time.Until(until))
		s.line.wait(s)
		select {
		case <-s.feed.ready:
		case <-s.place.wake:
		case <-s.hold.wakes():
		case <-timer.C:
		case ack = <-s.asked:
		case <-ctx.Done():
		}
		if err := cmp.Or(s.consume(), s.line.brief(s.showHeld)); err != nil {
			return err
		}
		if now := time.Now(); ack != nil || !now.Before(look) {
			if err := s.line.brief(s.tick); err != nil {
				return err
			}
			look = after(look, lateEvery)
		}
		if ctx.Err() != nil {
			break
		}
		if now := time.Now(); !now.Before(tell) {
			if err := s.line.brief(func() error { return s.tellLosses(false) }); err != nil {
				return err
			}
			tell = after(tell, tick)
		}
		if s.opts.Interval > 0 && !time.Now().Before(next) {
			// If a tick and the end come at the same time, the end counts.
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > s.opts.Interval/10 {
				s.line.busy(s)
				if err := s.output(false); err != nil {
					return err
				}
			}
			next = after(next, s.opts.Interval)
		}
		answer()
	}
	s.line.busy(s)
	return s.end()
}

// end shows the rest after the programs were detached.
func (s *Session) end() error {
	for _, r := range s.readers {
		if d, ok := r.(interface{ detaching() error }); ok {
			if err := d.detaching(); err != nil {
				return err
			}
		}
	}
	// After the detach nobody would see that a pending operation has ended.
	if err := s.tellPending(); err != nil {
		return err
	}
	detached := func() error { s.set.Detach(); return nil }
	if err := s.during(detached, s.synced); err != nil {
		return err
	}
	if err := s.showHeld(); err != nil {
		return err
	}
	if w := s.hold.warning(); w != "" {
		s.Warn(w)
	}
	if err := s.tick(); err != nil {
		return err
	}
	return s.output(true)
}

// synced returns when all records that the programs have sent until now are in the feed.
func (s *Session) synced() error {
	s.engine.ring.sync()
	s.packets.sync()
	return nil
}

// Deliver returns when the sink of a running session has all records that the programs had sent
// before the call, and the output that was due, or when ctx ends.
func (s *Session) Deliver(ctx context.Context) {
	s.synced()
	ack := make(chan struct{})
	select {
	case s.asked <- ack:
	case <-ctx.Done():
		return
	}
	select {
	case <-ack:
	case <-ctx.Done():
	}
}

// during calls functions that take time, one after the other, and shows events meanwhile. When
// they have returned it shows the events that came until then.
func (s *Session) during(fs ...func() error) error {
	done := make(chan error, 1)
	all := func() error {
		if guard := s.engine.guard; guard != nil {
			defer guard()
		}
		for _, f := range fs {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
	go func() { done <- all() }()
	var failed error
	for {
		s.line.wait(s)
		select {
		case <-s.feed.ready:
			if failed == nil || s.line != nil { // the records may be of others
				failed = s.consume()
			}
			if failed != nil {
				s.closeFeed() // else the reader might wait for room
			}
		case err := <-done:
			if err = cmp.Or(failed, err); err == nil {
				err = s.consume()
			}
			s.line.busy(s)
			return err
		}
	}
}

// closeFeed makes the reader hand over nothing more, unless the feed is that of others too.
func (s *Session) closeFeed() {
	if s.line == nil {
		s.feed.close(nil)
	}
}

// consume shows the events that have been read.
func (s *Session) consume() error {
	if s.line != nil {
		return s.line.consume(s)
	}
	for {
		var err error
		if s.records, err = s.feed.take(s.records); err != nil {
			return fmt.Errorf("ring: %w", err)
		}
		if len(s.records) == 0 {
			return s.endBatch()
		}
		if err := each(s.records, s.dispatch); err != nil {
			return err
		}
	}
}

// endBatch tells the kernel side and the sink that a batch of events has become rows.
func (s *Session) endBatch() error {
	if err := s.giveCredit(0); err != nil {
		return err
	}
	return s.sink.End(row.End{Time: time.Now()})
}

// creditStep is how many bytes become rows before the kernel side is told: a small part of what
// may wait for one tool.
const creditStep = 64 << 10

// giveCredit tells the kernel side how many bytes of the ring have become rows, if it does not
// know of more than least of them.
func (s *Session) giveCredit(least uint64) error {
	if s.credit == nil || s.taken-s.given <= least {
		return nil
	}
	s.given = s.taken
	if err := s.credit.Set(s.taken); err != nil {
		return fmt.Errorf("ring_taken: %w", err)
	}
	return nil
}

// polls says whether a view has to look for something now and then.
func (s *Session) polls() bool {
	return slices.ContainsFunc(s.readers, func(r reader) bool {
		p, ok := r.(interface{ polls() bool })
		return ok && p.polls()
	})
}

// tick makes views look for things that happen without an event.
func (s *Session) tick() error {
	for _, r := range s.readers {
		if t, ok := r.(interface{ tick() error }); ok {
			if err := t.tick(); err != nil {
				return err
			}
		}
	}
	return nil
}

// noticeView is VIEW_NOTICE of event.h.
const noticeView = 0xffff

func (s *Session) dispatch(raw []byte) error {
	s.taken += uint64(recordBytes(len(raw)))
	if err := s.giveCredit(creditStep); err != nil {
		return err
	}
	if len(raw) < int(unsafe.Sizeof(kern.Head{})) {
		s.undecodable.Add(1)
		return nil
	}
	var head kern.Head
	decode(&head, raw)
	if head.View == noticeView {
		if s.notice != nil {
			s.notice(uint32(head.PID))
		}
		for _, r := range s.readers {
			if n, ok := r.(interface{ notice([]byte) }); ok {
				n.notice(raw)
			}
		}
		return nil
	}
	if int(head.View) >= len(s.readers) {
		s.undecodable.Add(1)
		return nil
	}
	if s.hold != nil {
		return s.hold.add(raw, s.event)
	}
	return s.event(raw)
}

// event has a view show a record.
func (s *Session) event(raw []byte) error {
	var head kern.Head
	decode(&head, raw)
	s.events.Add(1)
	return s.readers[head.View].event(raw)
}

// show hands a row to the sink.
func (s *Session) show(r *row.Row) error {
	s.rows.Add(1)
	return s.sink.Row(r)
}

// output makes every view print what it has counted. Pending operations are shown here, except
// for the last output: there they were shown before.
func (s *Session) output(last bool) (err error) {
	if !last {
		if err := s.tellPending(); err != nil {
			return err
		}
	} else {
		if err := s.tellLosses(true); err != nil {
			return err
		}
	}
	if s.turned, err = s.epochs.turn(last); err != nil {
		return err
	}
	for _, r := range s.readers {
		if err := r.output(last); err != nil {
			return err
		}
	}
	if !last {
		for _, r := range s.readers {
			if c, ok := r.(interface{ clear() error }); ok {
				if err := c.clear(); err != nil {
					return err
				}
			}
		}
	}
	return s.sink.End(row.End{Time: time.Now(), Output: true, Last: last})
}
