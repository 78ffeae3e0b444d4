// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The budget is a promise: the oldest segment is deleted before a write that would break it. A
// stream that writes much must not push the others out. So frames of streams that take less than
// their share are copied unchanged from the oldest segment to the newest before the oldest is
// deleted. Readers know copied frames by their numbers, which are less than the segment's first.
//
// Copies only ever come from the oldest segment. So every copied frame is older than all that are
// not, and one whose original is still there was copied by a writer that ended before it could delete it.

// shared is the part of the budget that is divided among the streams. The rest is first come,
// first served.
const shared = 0.75

// kept is how many bytes of the oldest segment have to be copied before it is deleted,
// and of which streams.
func (w *Writer) kept(oldest *segment) (n int64, streams map[uint64]bool) {
	if w.opts.Streams < 2 || w.opts.Budget == 0 {
		return 0, nil
	}
	share := uint64(float64(w.opts.Budget) * shared / float64(w.opts.Streams))
	for id, s := range oldest.streams {
		if w.taken[id] <= share {
			if streams == nil {
				streams = map[uint64]bool{}
			}
			streams[id] = true
			n += int64(s.Bytes) + schemaRoom
		}
	}
	return n, streams
}

// schemaRoom is room for the schemas and names that go with copied frames.
const schemaRoom = 16 << 10

// evict makes room: files of others that are older first, then the oldest segment. False:
// there is nothing left to delete.
func (w *Writer) evict() bool {
	before := w.opts.Now()
	if len(w.closed) > 0 {
		before = w.closed[0].newest()
	}
	if w.opts.Free != nil && w.opts.Free(before) {
		return true
	}
	if len(w.closed) == 0 {
		return false
	}
	// The budget goes before the shares, and a full disk takes no copies.
	if n, streams := w.kept(w.closed[0]); n > 0 && w.cur != nil && w.taking(n) <= w.opts.Budget {
		if err := w.copyFrames(w.closed[0], streams); err == nil {
			unix.Fdatasync(int(w.cur.file.Fd()))
		}
	}
	return w.drop()
}

// newest is the time of the last row.
func (s *segment) newest() time.Time {
	var ns int64
	for _, sum := range s.streams {
		ns = max(ns, sum.Max)
	}
	return time.Unix(0, ns)
}

// drop deletes the oldest segment.
func (w *Writer) drop() bool {
	if len(w.closed) == 0 {
		return false
	}
	s := w.closed[0]
	err := os.Remove(s.path)
	w.ending = slices.DeleteFunc(w.ending, func(f *os.File) bool {
		if f.Name() != s.path {
			return false
		}
		f.Close() // a file that is open takes room though it has been deleted
		return true
	})
	w.closed = w.closed[1:]
	w.gone++
	w.used -= blocks(s.size)
	w.largest = 0
	for _, o := range w.closed {
		w.largest = max(w.largest, blocks(o.size))
	}
	for id, sum := range s.streams {
		w.taken[id] -= sum.Bytes
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// copyFrames appends the frames of these streams to the newest segment, as they are.
func (w *Writer) copyFrames(from *segment, streams map[uint64]bool) error {
	f, err := os.Open(from.path)
	if err != nil {
		return err
	}
	defer f.Close()
	c, _, err := lookFile(f, every)
	if err != nil {
		return err
	}
	names := map[uint64]bool{}
	for _, e := range c.entries {
		if e.Kind != Names && !streams[e.Stream] {
			continue
		}
		if _, has := w.cur.held[e.Schema]; has && e.Kind == Schema {
			continue
		}
		b := make([]byte, e.size)
		if _, err := f.ReadAt(b, e.off); err != nil {
			return err
		}
		got, err := parse(b)
		if err != nil {
			continue // damage is not copied
		}
		if e.Kind == Names {
			if h := hash(got.Data); h == w.cur.names || names[h] {
				continue
			} else {
				names[h] = true
			}
		}
		if w.cur.size > 0 && w.cur.size+e.size > w.opts.Segment {
			w.finish()
			if err := w.begin(w.opts.Now()); err != nil {
				return err
			}
		}
		if err := w.append(b); err != nil {
			return err
		}
		if w.took(&got, e.size); e.Kind == Schema {
			w.cur.held[e.Schema] = w.cur.size
		}
	}
	return nil
}
