// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"sync"
)

// A feed is the records of one tool on their way from the reader of the ring to the
// tool's session. Both sides work on buffers of their own and exchange them whole.
type feed struct {
	in    []byte        // the reader's, not handed over yet
	ready chan struct{} // holds a token when there are records, or there will be no more
	room  chan struct{} // holds a token when some have been taken

	// most is how many bytes may wait here before the reader waits too; 0: any number.
	// A ring that tools share bounds them in the kernel (ring_most in event.h), so
	// that the reader need not wait for one tool while others have events.
	most int

	mu     sync.Mutex
	out    []byte // handed over
	closed bool
	err    error // why
}

func newFeed(most int) *feed {
	return &feed{most: most, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// keepMost is the largest buffer that is used again: a flood may have made it larger.
const keepMost = 256 << 10

// add appends a record, with its length in front. Only the reader calls it.
func (f *feed) add(raw []byte) {
	f.in = binary.NativeEndian.AppendUint32(f.in, uint32(len(raw)))
	f.in = append(f.in, raw...)
}

// hand gives the session the records that were added. It waits while too many bytes wait.
func (f *feed) hand() {
	f.mu.Lock()
	for f.most > 0 && len(f.out) >= f.most && !f.closed {
		f.mu.Unlock()
		<-f.room
		f.mu.Lock()
	}
	switch {
	case f.closed:
		f.in = f.in[:0]
	case len(f.out) == 0:
		f.in, f.out = f.out[:0], f.in
	default:
		f.out = append(f.out, f.in...)
		f.in = f.in[:0]
	}
	f.mu.Unlock()
	token(f.ready)
}

// take returns the records that were handed over, and takes back the buffer that it returned the
// last time. The result is empty if there are none.
func (f *feed) take(used []byte) ([]byte, error) {
	if cap(used) > keepMost {
		used = nil
	}
	f.mu.Lock()
	out := f.out
	f.out = used[:0]
	err := f.err
	f.mu.Unlock()
	token(f.room)
	return out, err
}

// close makes the feed take nothing more, and neither side wait.
func (f *feed) close(err error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	if !f.closed {
		f.closed, f.err = true, err
	}
	f.mu.Unlock()
	token(f.room)
	token(f.ready)
}

// each calls do with every record of what take returned.
func each(records []byte, do func(raw []byte) error) error {
	for len(records) > 0 {
		n := binary.NativeEndian.Uint32(records)
		if err := do(records[4 : 4+n]); err != nil {
			return err
		}
		records = records[4+n:]
	}
	return nil
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
