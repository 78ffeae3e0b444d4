// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a Writer. The zero value works.
type Options struct {
	// Budget is how many bytes all segments may take together; 0: no limit.
	Budget int64
	// Others is how many bytes count against the budget that the writer did not
	// write, such as Parquet files. Free deletes the oldest of them if it is older than
	// before, and says whether there was one. Both may be nil.
	Others func() int64
	Free   func(before time.Time) bool
	// Segment is the size at which a segment ends; 0: 8 MiB, or an eighth of the budget.
	Segment int64
	// Age is how long a segment lasts; 0: an hour.
	Age time.Duration
	// Keep is how long frames are kept; 0: as long as the budget allows.
	Keep time.Duration
	// Streams is how many streams share the budget. One that takes less than its share
	// loses nothing to the others.
	Streams int
	// Sync is how often data is forced to disk; 0: each second; less: never.
	Sync time.Duration
	// Closed is called with each segment that is complete; nil: nobody wants to know.
	Closed func(path string)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// MinBudget is the least budget that a Writer takes.
const MinBudget = 1 << 20

// A Writer appends frames to the newest segment of a directory. Its methods may be called
// by several goroutines.
type Writer struct {
	dir  string
	opts Options
	lock *os.File

	mu      sync.Mutex
	closed  []*segment // the oldest first
	cur     *segment   // nil: none is open
	seq     uint64     // the last number that was given
	prev    map[uint64]uint64
	schemas map[uint64]schema
	names   []byte
	buf     []byte
	used    int64             // bytes of closed segments, in blocks
	largest int64             // of them
	taken   map[uint64]uint64 // bytes of each stream
	gone    int               // segments that were deleted for room
	ending  []*os.File        // of segments that have ended, to be forced to disk

	ended chan struct{}
	wait  sync.WaitGroup
}

// segment is a file of ours.
type segment struct {
	path  string
	file  *os.File // of the one that is written
	size  int64
	first uint64
	began time.Time
	dirty bool
	held  map[uint64]int64 // schemas that it has: where the last copy ends
	names uint64           // hash of the names that it has
	contents
}

type schema struct {
	stream uint64
	data   []byte
}

// ErrTooLarge says that a frame does not fit into the budget.
var ErrTooLarge = errors.New("the frame does not fit into the budget")

// OpenWriter locks dir, which is created if it does not exist. The first frame begins a segment.
// Segments that are there are kept, as far as the budget allows.
func OpenWriter(dir string, o Options) (*Writer, error) {
	if o.Budget != 0 && o.Budget < MinBudget {
		return nil, fmt.Errorf("a budget of %d bytes is too small: %d is the least", o.Budget, MinBudget)
	}
	if o.Segment == 0 {
		o.Segment = 8 << 20
		if o.Budget > 0 {
			o.Segment = min(o.Segment, o.Budget/8)
		}
	}
	if o.Age == 0 {
		o.Age = time.Hour
	}
	if o.Sync == 0 {
		o.Sync = time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, opts: o, prev: map[uint64]uint64{}, schemas: map[uint64]schema{}, taken: map[uint64]uint64{}, ended: make(chan struct{})}
	var err error
	if w.lock, err = lock(dir); err != nil {
		return nil, err
	}
	if err := w.load(); err != nil {
		w.lock.Close()
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.over(0) > 0 && w.evict() {
	}
	w.wait.Go(w.syncing)
	return w, nil
}

// load finds out what is there.
func (w *Writer) load() error {
	paths, err := segments(w.dir)
	if err != nil {
		return err
	}
	for i, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		last := i == len(paths)-1
		c, closed, err := lookFile(f, func(*contents) bool { return last })
		st, err2 := f.Stat()
		f.Close()
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		s := &segment{path: p, size: st.Size(), contents: *c}
		s.first, _ = firstOf(p)
		for _, e := range c.entries {
			w.seq = max(w.seq, e.Seq)
		}
		if last {
			// Numbers of damaged frames are not reused.
			w.seq = max(w.seq, s.first) + uint64(c.skipped)
		}
		if s.entries = nil; !closed && w.opts.Closed != nil {
			w.opts.Closed(p) // of a process that was killed
		}
		for id, sum := range s.streams {
			w.taken[id] += sum.Bytes
		}
		w.closes(s)
	}
	return nil
}

// closes adds a segment to those that are complete.
func (w *Writer) closes(s *segment) {
	w.closed = append(w.closed, s)
	w.used += blocks(s.size)
	w.largest = max(w.largest, blocks(s.size))
}

// Stream makes an id of a stream's name.
func Stream(name string) uint64 { return hash([]byte(name)) }

func hash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// Schema adds a schema of a stream. It is written in each segment before the first frame that
// has its id, and again now and then: rows without their schema are lost.
func (w *Writer) Schema(stream uint64, data []byte) (id uint64) {
	id = hash(data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schemas[id] = schema{stream, data}
	return id
}

// Names sets the names, which each segment has from now on.
func (w *Writer) Names(data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = data
}

// Put writes a frame of rows or marks, whole or not at all. It gets its number here.
// If the disk is full, the oldest segment is deleted; if there is none, the frame is refused.
func (w *Writer) Put(f *Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		err := w.try(f)
		if err == nil || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || !w.evict() {
			return err
		}
	}
}

func (w *Writer) try(f *Frame) error {
	const head = 64 // of a frame, at most
	n := int64(len(f.Data) + len(w.schemas[f.Schema].data) + len(w.names) + 3*head)
	if err := w.segment(n); err != nil {
		return err
	}
	for w.over(n) > 0 {
		if !w.evict() {
			return ErrTooLarge
		}
	}
	if err := w.segment(0); err != nil { // copying may have ended it
		return err
	}
	if err := w.putNames(); err != nil {
		return err
	}
	if err := w.repeat(f.Schema); err != nil {
		return err
	}
	f.Seq, f.Prev = w.seq+1, w.prev[f.Stream]
	if err := w.write(f); err != nil {
		return err
	}
	w.seq = f.Seq
	w.prev[f.Stream] = f.Seq
	return nil
}

// repeatEvery is after how many bytes a schema is written again.
const repeatEvery = 1 << 20

// repeat writes a schema if the segment does not have it, or not lately.
func (w *Writer) repeat(id uint64) error {
	s, known := w.schemas[id]
	at, has := w.cur.held[id]
	if !known || has && w.cur.size-at < repeatEvery {
		return nil
	}
	if err := w.write(&Frame{Kind: Schema, Stream: s.stream, Schema: id, Data: s.data}); err != nil {
		return err
	}
	w.cur.held[id] = w.cur.size
	return nil
}

func (w *Writer) putNames() error {
	if len(w.names) == 0 || w.cur.names == hash(w.names) {
		return nil
	}
	if err := w.write(&Frame{Kind: Names, Data: w.names}); err != nil {
		return err
	}
	w.cur.names = hash(w.names)
	return nil
}

// segment makes sure that a segment is open and can take n more bytes.
func (w *Writer) segment(n int64) error {
	now := w.opts.Now()
	if s := w.cur; s != nil && (s.size > 0 && s.size+n > w.opts.Segment || now.Sub(s.began) >= w.opts.Age) {
		w.finish()
	}
	w.expire(now)
	if w.cur != nil {
		return nil
	}
	return w.begin(now)
}

// begin opens a new segment.
func (w *Writer) begin(now time.Time) error {
	w.seq++ // the first frame is that or a later one
	s := &segment{path: filepath.Join(w.dir, segmentName(w.seq, now)), first: w.seq, began: now, held: map[uint64]int64{}}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	s.file, w.cur = f, s
	return nil
}

// finish ends the segment with its index. If there is no room for the index, readers scan the
// segment.
func (w *Writer) finish() {
	s := w.cur
	b := indexFrame(&s.contents)
	if _, err := s.file.WriteAt(b, s.size); err != nil {
		s.file.Truncate(s.size)
	} else {
		s.size += int64(len(b))
	}
	w.cur = nil
	w.ending = append(w.ending, s.file)
	s.file, s.entries, s.held = nil, nil, nil
	w.closes(s)
	if w.opts.Closed != nil {
		w.opts.Closed(s.path)
	}
}

// expire deletes segments that are older than is kept.
func (w *Writer) expire(now time.Time) {
	for w.opts.Keep > 0 && len(w.closed) > 0 {
		if now.Sub(w.closed[0].newest()) <= w.opts.Keep || !w.drop() {
			return
		}
	}
}

// write appends one frame.
func (w *Writer) write(f *Frame) error {
	w.buf = appendFrame(w.buf[:0], f)
	if err := w.append(w.buf); err != nil {
		return err
	}
	w.took(f, int64(len(w.buf)))
	return nil
}

// append writes the bytes of a frame. Half a frame is cut off again: it would look like damage.
func (w *Writer) append(b []byte) error {
	if _, err := w.cur.file.WriteAt(b, w.cur.size); err != nil {
		return errors.Join(err, w.cur.file.Truncate(w.cur.size))
	}
	return nil
}

// took notes that f was written.
func (w *Writer) took(f *Frame, n int64) {
	e := entry{Frame: *f, off: w.cur.size, size: n}
	e.Data = nil
	w.cur.add(e)
	if f.Kind.counted() {
		w.taken[f.Stream] += uint64(n)
	}
	w.cur.size += n
	w.cur.dirty = true
}

// over is by how many bytes the budget would be exceeded if n more were written. It includes the
// index of the segment, and room for the frames of an old segment that have to be copied.
func (w *Writer) over(n int64) int64 {
	if w.opts.Budget == 0 {
		return 0
	}
	reserve := int64(0)
	if w.opts.Streams > 1 {
		reserve = w.largest
	}
	return w.taking(n) + reserve - w.opts.Budget
}

// taking is how many bytes all files would take with n more.
func (w *Writer) taking(n int64) int64 {
	sum := w.used + block // the lock
	if w.opts.Others != nil {
		sum += w.opts.Others()
	}
	const perFrame, perIndex = 64, 4096
	if w.cur != nil {
		n += w.cur.size + int64(len(w.cur.entries)+1)*perFrame
	}
	return sum + blocks(n+perIndex)
}

// MakeRoom deletes the oldest segments until all files are within the budget. False: they are
// still above it, and there is nothing left to delete.
func (w *Writer) MakeRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.over(0) > 0 {
		if !w.evict() {
			return false
		}
	}
	return true
}

// Oldest is the time of the oldest frame of a stream; false: there is none.
func (w *Writer) Oldest(stream uint64) (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all Summary
	for _, s := range w.closed {
		if sum := s.streams[stream]; sum != nil {
			all.add(*sum)
		}
	}
	if w.cur != nil {
		if sum := w.cur.streams[stream]; sum != nil {
			all.add(*sum)
		}
	}
	return time.Unix(0, all.Min), all.Min != 0
}

// Gone is how many segments were deleted for room.
func (w *Writer) Gone() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// syncing forces data to disk now and then. It is a goroutine of its own, since a disk may
// take its time.
func (w *Writer) syncing() {
	var tick <-chan time.Time
	if w.opts.Sync > 0 {
		t := time.NewTicker(w.opts.Sync)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-tick:
			w.flush()
		case <-w.ended:
			w.flush()
			return
		}
	}
}

// flush forces written data to disk. Others can write meanwhile.
func (w *Writer) flush() {
	w.mu.Lock()
	files := w.ending
	w.ending = nil
	if w.cur != nil && w.cur.dirty {
		w.cur.dirty = false
		if fd, err := unix.FcntlInt(w.cur.file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			files = append(files, os.NewFile(uintptr(fd), w.cur.path))
		}
	}
	w.mu.Unlock()
	for _, f := range files {
		if w.opts.Sync > 0 {
			unix.Fdatasync(int(f.Fd()))
		}
		f.Close()
	}
	if len(files) > 0 && w.opts.Sync > 0 {
		syncDir(w.dir)
	}
}

func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}

// Close ends the segment and lets go of the directory.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.cur != nil {
		w.finish()
	}
	w.mu.Unlock()
	close(w.ended)
	w.wait.Wait()
	return w.lock.Close()
}
