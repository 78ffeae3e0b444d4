// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// On is embedded in the config of tools that can keep events in memory until a row of another
// tool comes.
type On struct {
	On     string        `flag:"on" help:"keep packets in memory, and write those around each row of another tool: 'tcpretrans: cause == \"rto\"'"`
	Before time.Duration `flag:"before" help:"with --on: write packets from this long before the row (default 5s)"`
	After  time.Duration `flag:"after" help:"with --on: write packets until this long after the row (default 1s)"`
	Keep   string        `flag:"keep" help:"with --on: memory for the packets that are kept, in bytes (default 64M)"`
}

// Waits is the On of a config.
func (o *On) Waits() *On { return o }

// NewHold is what a run keeps by these flags.
func (o *On) NewHold() (*Hold, error) {
	h := &Hold{before: 5 * time.Second, after: time.Second, most: 64 << 20, woken: make(chan struct{}, 1)}
	if o.Before > 0 {
		h.before = o.Before
	}
	if o.After > 0 {
		h.after = o.After
	}
	if o.Keep == "" {
		return h, nil
	}
	n, err := ParseSize(o.Keep)
	if err != nil || n < 1<<20 {
		return nil, Usagef("--keep %s: must be at least 1M", o.Keep)
	}
	h.most = int(n)
	return h, nil
}

// Check refuses flags that exclude each other.
func (o *On) Check() error {
	if o.On == "" && (o.Before > 0 || o.After > 0 || o.Keep != "") {
		return Usagef("--before, --after and --keep need --on")
	}
	_, err := o.NewHold()
	return err
}

// A Hold keeps the records of a session as they come from the kernel. When Show is called with a
// time, the records around it are handed on. Others are forgotten when they are too old, or when
// there is no more room. All methods but Show are called by the session's goroutine.
type Hold struct {
	before, after time.Duration
	most          int
	woken         chan struct{} // holds a token when Show was called

	chunks []*heldChunk // the oldest first
	bytes  int          // of all chunks
	gone   kern.Mono    // records up to here were dropped for lack of room
	until  kern.Mono    // records up to here are handed on as they come
	shorts int          // times of Show for which not all records were there

	mu      sync.Mutex
	asked   []kern.Mono
	moments int
}

// heldChunk is some records in a row, each with its length in front as in a feed.
type heldChunk struct {
	records []byte
	at      int // where the first one begins that is still there
	last    kern.Mono
}

const (
	heldBytes = 256 << 10 // of a chunk
	// heldLate is how late a row may come after its time. Tools that count give rows once an interval.
	heldLate = 2 * time.Second
)

// Show hands on the records around a time. Any goroutine may call it.
func (h *Hold) Show(at time.Time) {
	h.mu.Lock()
	h.asked = append(h.asked, kern.MonoAt(at))
	h.moments++
	h.mu.Unlock()
	token(h.woken)
}

// Moments is how often Show was called.
func (h *Hold) Moments() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moments
}

// Hold makes the session keep its records in h. It is called before Run.
func (s *Session) Hold(h *Hold) { s.hold = h }

// showHeld shows the records that the session keeps around the times of Show.
func (s *Session) showHeld() error {
	if any, err := s.hold.flush(s.event); err != nil || !any {
		return err
	}
	return s.sink.End(row.End{Time: time.Now()})
}

// wakes is a channel with a token when there is something to show; nil: never.
func (h *Hold) wakes() chan struct{} {
	if h == nil {
		return nil
	}
	return h.woken
}

// add takes a record and hands it on if it is wanted now.
func (h *Hold) add(raw []byte, show func([]byte) error) error {
	ts := kern.Mono(binary.NativeEndian.Uint64(raw))
	if ts <= h.until && len(h.chunks) == 0 {
		return show(raw)
	}
	n := len(h.chunks)
	if n == 0 || len(h.chunks[n-1].records)+len(raw)+4 > cap(h.chunks[n-1].records) {
		h.forget(ts, len(raw)+4)
		c := &heldChunk{records: make([]byte, 0, max(heldBytes, len(raw)+4))}
		h.bytes += cap(c.records)
		h.chunks = append(h.chunks, c)
	}
	c := h.chunks[len(h.chunks)-1]
	c.records = binary.NativeEndian.AppendUint32(c.records, uint32(len(raw)))
	c.records = append(c.records, raw...)
	c.last = max(c.last, ts)
	return nil
}

// forget makes room for so many bytes, and forgets records that are too old for any row.
func (h *Hold) forget(now kern.Mono, more int) {
	old := kern.Mono(0)
	if keep := kern.Mono(h.before + heldLate); now > keep {
		old = now - keep
	}
	for len(h.chunks) > 0 {
		c := h.chunks[0]
		if c.last >= old {
			if h.bytes+max(heldBytes, more) <= h.most {
				return
			}
			h.gone = max(h.gone, c.last)
		}
		h.drop()
	}
}

// drop forgets the oldest chunk.
func (h *Hold) drop() {
	h.bytes -= cap(h.chunks[0].records)
	h.chunks[0] = nil
	h.chunks = h.chunks[1:]
}

// flush hands on the records around the times of Show, and says whether there were any.
func (h *Hold) flush(show func([]byte) error) (any bool, err error) {
	if h == nil {
		return false, nil
	}
	h.mu.Lock()
	asked := h.asked
	h.asked = nil
	h.mu.Unlock()
	for _, at := range asked {
		from, until := kern.Mono(0), at+kern.Mono(h.after)
		if at > kern.Mono(h.before) {
			from = at - kern.Mono(h.before)
		}
		if from <= h.gone {
			h.shorts++
		}
		h.until = max(h.until, until)
		if err := h.hand(from, show); err != nil {
			return true, err
		}
	}
	return len(asked) > 0, nil
}

// hand hands on the records from a time until h.until, and forgets those before.
func (h *Hold) hand(from kern.Mono, show func([]byte) error) error {
	for len(h.chunks) > 0 {
		c := h.chunks[0]
		for c.at < len(c.records) {
			n := int(binary.NativeEndian.Uint32(c.records[c.at:]))
			raw := c.records[c.at+4 : c.at+4+n]
			ts := kern.Mono(binary.NativeEndian.Uint64(raw))
			if ts > h.until {
				return nil
			}
			c.at += 4 + n
			if ts < from {
				continue
			}
			if err := show(raw); err != nil {
				return err
			}
		}
		h.drop()
	}
	return nil
}

// warning says that there was too little room.
func (h *Hold) warning() string {
	if h == nil || h.shorts == 0 {
		return ""
	}
	return fmt.Sprintf("packets within %v before a row were dropped because memory was too small, %d times: a larger --keep helps", h.before, h.shorts)
}
