// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/probe"
)

// An Engine runs tools in one process. They share the knowledge about the kernel, one ring and
// the goroutine that reads it, and one clock. Tools come and go while others run: any goroutine
// may call all methods at any time.
type Engine struct {
	kernel *probe.Kernel
	buffer uint64
	alone  bool          // for one tool, which has the whole ring
	poll   time.Duration // 0: poll
	guard  func()
	line   *line // nil: each tool has a feed of its own

	mu       sync.Mutex
	ring     *ring // made for the first tool
	sessions map[*Session]bool
	closed   bool

	owners owners
}

// EngineOptions are what tools have in common. The zero value works.
type EngineOptions struct {
	Buffer uint64 // bytes of the ring; 0: 8 MiB
	// Poll is how long an event may wait in the ring before it is read; 0: 50 ms. The reader
	// wakes up so often even if nothing happens.
	Poll time.Duration
	// Ordered makes sessions show events in the order of the ring, across all tools. A sink that is
	// slow then delays all of them.
	Ordered bool
	// Guard is deferred by each goroutine that the engine starts, so that it can recover from a
	// panic there. May be nil.
	Guard func()
}

// DefaultShared is the size of a ring that tools share.
const DefaultShared = 8 << 20

// Parts of a ring that tools share. The reader is woken well before one tool alone
// has taken up its part, and the parts of three tools leave room for the others.
const (
	ringMost = 4  // a tool has no more than a quarter of it waiting
	ringWake = 16 // the reader is woken when so much of it is full
)

// NewEngine makes an engine without tools.
func NewEngine(o EngineOptions) (*Engine, error) {
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultShared
	}
	size, err := ringSize(o.Buffer)
	if err != nil {
		return nil, err
	}
	e := &Engine{kernel: k, buffer: size, poll: o.Poll, guard: o.Guard, sessions: map[*Session]bool{}}
	if o.Ordered {
		e.line = newLine()
	}
	return e, nil
}

// ringSize is the next size that a ring can have.
func ringSize(asked uint64) (uint64, error) {
	if asked > 1<<30 {
		return 0, Usagef("--buffer: at most 1 GiB")
	}
	return 1 << bits.Len64(max(asked, uint64(os.Getpagesize()))-1), nil
}

// Attach loads the programs of the tool alone, in an engine of its own, and puts them
// into place. The session must be closed, or run to its end.
func (p *Prepared) Attach() (*Session, error) {
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	e := &Engine{kernel: k, alone: true, sessions: map[*Session]bool{}}
	s, err := e.Attach(p)
	if err != nil {
		e.Close()
	}
	return s, err
}

// Attach loads the programs of a tool and puts them into place beside those that run.
// The session must be closed, or run to its end.
func (e *Engine) Attach(p *Prepared) (_ *Session, err error) {
	k := e.kernel
	var notes []string
	if p.Tool.Look != nil {
		if notes, err = p.Tool.Look(p.cfg, &p.opts.Filter); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
		}
	}
	if err := p.settle(k); err != nil {
		return nil, err
	}
	s := &Session{
		engine: e, Notes: notes, opts: p.opts, views: p.Views, schemas: p.Schemas, by: p.by, keyBits: p.keyBits,
		ticks: p.opts.Interval > 0, late: attachesLate(p.spec), keeps: p.Tool.Keeps, asked: make(chan chan struct{}),
	}
	owners := e.makeOwners(p)
	defer owners.close()
	if err := e.join(s, p); err != nil {
		return nil, err
	}
	err = e.place(s, p, owners)
	e.ring.begin() // leave waits for the reader
	if err != nil {
		s.packets.close()
		e.leave(s)
		return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
	}
	s.Maps = s.set.Maps
	if err := s.open(); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
	}
	return s, nil
}

// settle writes the constants that depend on the kernel into the object.
func (p *Prepared) settle(k *probe.Kernel) error {
	if err := setHelpers(p.spec, k); err != nil {
		return err
	}
	if err := p.allocateByUse(k); err != nil {
		return err
	}
	for name, v := range p.spec.Variables {
		// args_<tracepoint>: how many arguments it has here; see drop.h
		if tp, ok := strings.CutPrefix(name, "args_"); ok {
			if err := v.Set(uint32(len(k.Args(tp)))); err != nil {
				return err
			}
		}
	}
	return setCode(p.spec)
}

// place puts the programs of a session into place: first those of the owners that it
// shares, if it does.
func (e *Engine) place(s *Session, p *Prepared, made *made) (err error) {
	if s.owners, err = e.joinOwners(p); err != nil {
		return err
	}
	points, share := p.Points, e.ring.maps()
	if s.owners != nil {
		mine, err := s.owners.shared(p.spec)
		if err != nil {
			return err
		}
		share = maps.Clone(share)
		maps.Copy(share, mine)
		o, _ := ownerOptionsOf(p.spec)
		points = o.own(points)
		s.Choices = s.owners.choices()
		s.owners.count(&s.before)
	}
	if made != nil {
		m, err := made.wait()
		if err != nil {
			return fmt.Errorf("making maps: %w", err)
		}
		share = maps.Clone(share)
		share[ownersMap] = m // which is copied
	}
	if s.relay, err = e.joinRelay(p); err != nil {
		return err
	}
	ahead := p.ahead
	p.ahead = nil // the types are not needed any more
	s.set, err = probe.Attach(e.kernel, p.spec, points, probe.Options{
		Force: p.opts.Force, Log: p.opts.Log, Share: share, Instead: s.relay.place, Ahead: ahead,
		Fill:   func(maps map[string]*ebpf.Map) error { return errors.Join(p.fill(maps), s.openPackets(maps)) },
		Loaded: e.ring.begin,
	})
	if err != nil {
		return err
	}
	if s.relay != nil && !s.relay.used { // another way was taken
		e.leaveRelay(s.relay)
		s.relay = nil
	}
	s.Choices = append(s.Choices, s.set.Choices...)
	if err := e.settled(s.owners, p); err != nil {
		s.set.Close()
		return err
	}
	return nil
}

// fill writes the filters' sets.
func (p *Prepared) fill(maps map[string]*ebpf.Map) error {
	if p.opts.Filter.On == 0 {
		return nil
	}
	return p.opts.Filter.fill(maps)
}

// join makes the session one of the engine's, and gives it a place in the ring.
func (e *Engine) join(s *Session, p *Prepared) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errors.New("the engine has been closed")
	}
	if e.ring == nil {
		size := e.buffer
		if e.alone {
			size = uint64(p.spec.Maps[ringMap].MaxEntries) // as --buffer says
		}
		if e.ring, err = newRing(p.spec, uint32(size), cmp.Or(e.poll, poll), e.guard); err != nil {
			return err
		}
	}
	most := 0
	if e.alone || takesPackets(p.spec) { // packets come by a buffer and a reader of their own
		most = 1
	}
	if e.line != nil && most == 0 {
		s.line, s.feed = e.line, e.line.feed
	} else {
		s.feed = newFeed(most)
	}
	if s.id, err = e.ring.join(s.feed); err != nil {
		return err
	}
	if s.line != nil {
		s.line.join(s)
	}
	e.sessions[s] = true
	if e.alone {
		return nil
	}
	return errors.Join(setConstant(p.spec, "tool_id", s.id), setConstant(p.spec, "ring_most", e.ring.size()/ringMost),
		setConstant(p.spec, "wake_bytes", e.ring.size()/ringWake))
}

// leave takes the session out of the engine. Its programs have been detached.
func (e *Engine) leave(s *Session) {
	e.ring.sync()
	s.closeFeed()
	e.ring.leave(s.id)
	if s.line != nil {
		s.line.leave(s)
	}
	e.leaveRelay(s.relay)
	e.leaveOwners(s.owners)
	e.mu.Lock()
	delete(e.sessions, s)
	e.mu.Unlock()
	if e.alone {
		e.Close()
	}
}

// Sessions are those that have not ended.
func (e *Engine) Sessions() []*Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.sessions))
}

// Close detaches all tools. Those that run have to be ended by their contexts.
func (e *Engine) Close() {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return
	}
	for _, s := range e.Sessions() {
		s.Close()
	}
	if e.ring != nil {
		e.ring.close()
	}
}

// open does what comes after the programs are in place and before there are rows.
func (s *Session) open() (err error) {
	if s.opts.Stats {
		own := maps.Clone(s.Maps)
		if s.owners != nil {
			delete(own, ownersMap)
			delete(own, listenersMap)
		}
		s.memory, s.ring = memory(own)
		s.ring += s.packets.bytes()
	}
	if !s.engine.alone {
		s.credit = s.set.Vars["ring_taken"]
	}
	if v := s.set.Vars["count_epoch"]; v != nil {
		if s.ticks {
			s.epochs.v = v
		}
		if s.epochs.wait, err = newGrace(); err != nil {
			return err
		}
	}
	for _, it := range s.set.Iters[ownerSeed] {
		if err := drain(it); err != nil {
			return fmt.Errorf("walking over open sockets: %w", err)
		}
	}
	// Now, not when the run begins: events count from the moment when we are ready.
	for i := range s.views {
		r, err := s.views[i].Output.open(s, &s.views[i], i)
		if err != nil {
			return err
		}
		s.readers = append(s.readers, r)
	}
	return nil
}
