// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/kern"
	"seine/internal/ringbuf"
)

// A ring is the buffer between the programs of an engine's tools and their sessions, with the
// goroutine that reads it. The goroutine waits for no session: it hands the records of each tool
// to the tool's feed. So a slow sink of one tool does not delay the others.
type ring struct {
	coll    *ebpf.Collection
	woken   *ebpf.Variable
	wakes   *ebpf.Variable
	resting *ebpf.Variable
	reader  *ringbuf.Reader
	poll    time.Duration // how long an event may wait
	begin   func()        // lets the reader begin
	done    chan struct{} // closed when the reader has ended

	mu     sync.Mutex // guards the feeds
	feeds  atomic.Pointer[[]*feed]
	stray  atomic.Uint64 // records of no tool
	asking atomic.Bool   // asked is not empty
	asked  []chan struct{}
}

const (
	ringMap  = "events"     // its name in every object
	ringVars = ".data.ring" // the section of its variables
)

// poll is how long an event may wait in the ring before it is read, unless EngineOptions say
// otherwise.
const poll = 50 * time.Millisecond

// The reader rests when it has had nothing to read for restAfter. Then the next event wakes it at
// once, and until then it wakes once in restAfter instead of at each poll: each wake-up costs the
// processor some 100 µs.
const restAfter = time.Second

// newRing makes the ring that the object of a tool declares, for all tools. The goroutine that
// reads it defers guard, if there is one. It waits for begin. While programs are loaded it would
// only be in the way: Go takes up to 10 ms to see that it waits in the kernel, and until then
// no other goroutine runs on its processor.
func newRing(spec *ebpf.CollectionSpec, size uint32, poll time.Duration, guard func()) (*ring, error) {
	part := &ebpf.CollectionSpec{
		Maps:  map[string]*ebpf.MapSpec{ringMap: spec.Maps[ringMap].Copy(), ringVars: spec.Maps[ringVars]},
		Types: spec.Types, ByteOrder: spec.ByteOrder, Variables: map[string]*ebpf.VariableSpec{},
	}
	part.Maps[ringMap].MaxEntries = size
	for name, v := range spec.Variables {
		if v.SectionName == ringVars {
			part.Variables[name] = v
		}
	}
	coll, err := ebpf.NewCollection(part)
	if err != nil {
		return nil, fmt.Errorf("making the ring: %w", err)
	}
	r := &ring{coll: coll, woken: coll.Variables["woken"], wakes: coll.Variables["wakes"], resting: coll.Variables["resting"], poll: poll, done: make(chan struct{})}
	r.feeds.Store(&[]*feed{})
	if r.reader, err = ringbuf.NewReader(coll.Maps[ringMap]); err != nil {
		coll.Close()
		return nil, fmt.Errorf("ring: %w", err)
	}
	begun := make(chan struct{})
	r.begin = sync.OnceFunc(func() { close(begun) })
	go func() {
		if guard != nil {
			defer guard()
		}
		<-begun
		r.run()
	}()
	return r, nil
}

// maps are the maps that replace a tool's own.
func (r *ring) maps() map[string]*ebpf.Map { return r.coll.Maps }

// size is how many bytes it has room for.
func (r *ring) size() uint64 { return uint64(r.coll.Maps[ringMap].MaxEntries()) }

// woke is how often programs have woken the reader.
func (r *ring) woke() (n uint64) {
	r.wakes.Get(&n)
	return n
}

// close ends the reader.
func (r *ring) close() {
	for _, f := range *r.feeds.Load() {
		f.close(nil)
	}
	r.reader.Close()
	r.begin() // it ends at once
	<-r.done
	r.coll.Close()
}

// join gives f the first number that is free: the number of a tool in the ring.
func (r *ring) join(f *feed) (id uint16, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	feeds := append([]*feed(nil), *r.feeds.Load()...)
	at := 0
	for at < len(feeds) && feeds[at] != nil {
		at++
	}
	if at > int(^uint16(0)) {
		return 0, errors.New("ring: too many tools")
	}
	if at == len(feeds) {
		feeds = append(feeds, nil)
	}
	feeds[at] = f
	r.feeds.Store(&feeds)
	return uint16(at), nil
}

// leave frees the number. No program may still use it, and sync must have been called since:
// otherwise its records would be taken for those of the next tool.
func (r *ring) leave(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	feeds := append([]*feed(nil), *r.feeds.Load()...)
	feeds[id] = nil
	r.feeds.Store(&feeds)
}

// sync returns when all that is in the ring now has been handed to the feeds.
func (r *ring) sync() {
	ack := make(chan struct{})
	r.mu.Lock()
	r.asked = append(r.asked, ack)
	r.asking.Store(true)
	r.mu.Unlock()
	r.reader.Flush()
	select {
	case <-ack:
	case <-r.done:
	}
}

// run reads until the reader is closed.
func (r *ring) run() {
	defer close(r.done)
	b := batch{ring: r}
	var err error
	last, got := time.Now(), false // when there was a record, and whether there was one since
	rests := false                 // programs wake the reader by their next event
	for err == nil {
		if r.asking.Load() {
			err = r.serve(&b)
			continue
		}
		r.mayWake()
		kern.SyncClock()
		now, wait := time.Now(), r.poll
		if got {
			last, got = now, false
		}
		switch {
		case rests:
			wait = max(wait, restAfter)
		case now.Sub(last) >= restAfter && r.rest(true):
			rests, wait = true, 0 // a record that came before that wakes nobody
		}
		r.reader.SetDeadline(now.Add(wait))
		for {
			if err = r.reader.ReadInto(&b.rec); err != nil {
				b.end()
				break
			}
			if rests {
				rests = false
				r.rest(false)
				kern.SyncClock()
			}
			got = true
			b.take()
			if b.rec.Remaining == 0 {
				r.mayWake()
				b.end()
			}
			if r.asking.Load() {
				break
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
			err = nil
		}
	}
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	for _, f := range *r.feeds.Load() {
		f.close(err)
	}
}

// serve reads the records that are in the ring now, and no more: programs go on writing to it.
// Then it answers the callers of sync.
func (r *ring) serve(b *batch) error {
	r.mu.Lock()
	asked := r.asked
	r.asked = nil
	r.asking.Store(false)
	r.mu.Unlock()
	r.reader.SetDeadline(time.Now())
	var err error
	for left := r.reader.AvailableBytes(); left > 0 && err == nil; left -= recordBytes(len(b.rec.RawSample)) {
		if err = r.reader.ReadInto(&b.rec); err == nil {
			b.take()
		}
	}
	b.end()
	for _, ack := range asked {
		close(ack)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
		err = nil
	}
	return err
}

// mayWake lets programs wake the reader again; see event.h.
func (r *ring) mayWake() { r.woken.Set(uint64(0)) }

// rest says whether programs are to wake the reader by their next event.
func (r *ring) rest(on bool) bool {
	var v uint64
	if on {
		v = 1
	}
	return r.resting.Set(v) == nil
}

// recordBytes is what a record takes in the ring: EVENT_BYTES of event.h.
func recordBytes(n int) int {
	const header = 8
	return header + (n+7)&^7
}

// A batch is the records that the reader has read and not handed over.
type batch struct {
	ring  *ring
	rec   ringbuf.Record
	feeds []*feed // that have some
	bytes int
}

// batchMost is how many bytes are handed over at once at the most.
const batchMost = 32 << 10

// take gives the record to the feed of its tool.
func (b *batch) take() {
	raw := b.rec.RawSample
	var head kern.Head
	feeds := *b.ring.feeds.Load()
	if len(raw) >= int(unsafe.Offsetof(head.Netns)) {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&head)), unsafe.Offsetof(head.Netns)), raw)
	}
	if int(head.Tool) >= len(feeds) || feeds[head.Tool] == nil {
		b.ring.stray.Add(1)
		return
	}
	f := feeds[head.Tool]
	if len(f.in) == 0 {
		b.feeds = append(b.feeds, f)
	}
	f.add(raw)
	if b.bytes += len(raw); b.bytes >= batchMost {
		b.end()
	}
}

// end hands over the rest.
func (b *batch) end() {
	for _, f := range b.feeds {
		f.hand()
	}
	b.feeds, b.bytes = b.feeds[:0], 0
}
