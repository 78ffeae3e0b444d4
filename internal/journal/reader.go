// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// A Reader reads a recording: a directory of segments, or one of them. It needs no lock:
// a writer may be at work.
type Reader struct {
	path    string
	dir     bool
	own     bool // one segment alone, without frames that were copied into it
	schemas map[uint64][]byte
	damage  Damage
	last    map[uint64]uint64 // the last number of each stream; 0: it is not known
}

// Damage is what a Reader could not read.
type Damage struct {
	Bytes int64 // that are not part of a whole frame
	Gaps  int   // places where frames of a stream are missing
}

// A Want says which frames to read.
type Want struct {
	Streams  map[uint64]bool // nil: all
	Min, Max int64           // frames that have rows between these times; 0: no limit
	Names    func([]byte)    // is called with names, before frames that need them; may be nil
}

func (w *Want) stream(id uint64) bool { return w.Streams == nil || w.Streams[id] }

func (w *Want) frame(e *Frame) bool {
	return e.Kind.counted() && w.stream(e.Stream) && w.during(e.Min, e.Max)
}

func (w *Want) during(from, to int64) bool {
	return (w.Min == 0 || to >= w.Min) && (w.Max == 0 || from <= w.Max)
}

// Open opens the recording at path.
func Open(path string) (*Reader, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, dir: st.IsDir(), schemas: map[uint64][]byte{}, last: map[uint64]uint64{}}
	if !r.dir {
		return r, nil
	}
	paths, err := segments(path)
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: there is no recording in it", path)
	}
	return r, err
}

// OpenSegment opens one segment of a recording, without what was copied into it from others.
func OpenSegment(path string) (*Reader, error) {
	r, err := Open(path)
	if err == nil {
		r.own = true
	}
	return r, err
}

// Damage is what could not be read so far.
func (r *Reader) Damage() Damage { return r.damage }

func (r *Reader) paths() ([]string, error) {
	if !r.dir {
		return []string{r.path}, nil
	}
	return segments(r.path)
}

// look opens a segment. One that has been deleted meanwhile is nil.
func (r *Reader) look(path string, entries func(*contents) bool) (*os.File, *contents, bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && r.dir {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	c, closed, err := lookFile(f, entries)
	if err != nil {
		f.Close()
		return nil, nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return f, c, closed, nil
}

// Summaries adds up what there is of each stream.
func (r *Reader) Summaries() (map[uint64]*Summary, error) {
	paths, err := r.paths()
	out := map[uint64]*Summary{}
	for _, p := range paths {
		f, c, _, err := r.look(p, none)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue
		}
		f.Close()
		for id, s := range c.streams {
			if out[id] == nil {
				out[id] = &Summary{Stream: id}
			}
			out[id].add(*s)
		}
	}
	return out, err
}

// Schema returns the data of the schema with this id, wherever in the recording it is;
// nil if it is lost.
func (r *Reader) Schema(id uint64) []byte {
	if data, ok := r.schemas[id]; ok {
		return data
	}
	paths, _ := r.paths()
	for _, p := range paths {
		f, c, _, err := r.look(p, every)
		if err != nil || f == nil {
			continue
		}
		r.learn(f, c, nil)
		f.Close()
		if data, ok := r.schemas[id]; ok {
			return data
		}
	}
	r.schemas[id] = nil
	return nil
}

// Schemas returns the data and the stream of every schema, by id, from the segments that may
// have what is wanted.
func (r *Reader) Schemas(w *Want) (data map[uint64][]byte, stream map[uint64]uint64, err error) {
	paths, err := r.paths()
	stream = map[uint64]uint64{}
	for _, p := range paths {
		f, c, _, err := r.look(p, func(c *contents) bool { return c.during(w) })
		if err != nil {
			return nil, nil, err
		}
		if f == nil {
			continue
		}
		r.learn(f, c, nil)
		f.Close()
		for i := range c.entries {
			if e := &c.entries[i]; r.schemas[e.Schema] != nil {
				stream[e.Schema] = e.Stream
			}
		}
	}
	data = maps.Clone(r.schemas)
	maps.DeleteFunc(data, func(id uint64, d []byte) bool { _, seen := stream[id]; return d == nil || !seen })
	return data, stream, err
}

// learn reads the schemas of a segment that are not known yet, and its names.
func (r *Reader) learn(f *os.File, c *contents, w *Want) {
	for i := range c.entries {
		e := &c.entries[i]
		switch {
		case e.Kind == Schema && r.schemas[e.Schema] == nil:
			if got, err := readFrame(f, e, nil); err == nil && hash(got.Data) == e.Schema {
				r.schemas[e.Schema] = got.Data
			}
		case e.Kind == Names && w != nil && w.Names != nil:
			if got, err := readFrame(f, e, nil); err == nil {
				w.Names(got.Data)
			}
		}
	}
}

// readFrame reads the frame at an entry.
func readFrame(f io.ReaderAt, e *entry, buf []byte) (Frame, error) {
	if int64(cap(buf)) < e.size {
		buf = make([]byte, e.size)
	}
	buf = buf[:e.size]
	if _, err := f.ReadAt(buf, e.off); err != nil {
		return Frame{}, err
	}
	got, err := parse(buf)
	if err == nil && (got.Seq != e.Seq || got.Kind != e.Kind || got.Stream != e.Stream) {
		err = errDamaged
	}
	return got, err
}

// Frames calls f with every frame of rows and marks that is wanted, each once, the oldest
// first. A frame's data is valid until f returns. An error of f ends it.
func (r *Reader) Frames(w *Want, f func(*Frame) error) error {
	_, err := r.frames(w, f)
	return err
}

// place is where a reader has got to.
type place struct {
	path string
	off  int64
	done bool // the segment has its index: nothing is added any more
}

func (r *Reader) frames(w *Want, f func(*Frame) error) (at place, err error) {
	paths, err := r.paths()
	if err != nil {
		return at, err
	}
	if err := r.copied(paths, w, f); err != nil {
		return at, err
	}
	for _, p := range paths {
		if at, err = r.native(p, w, f); err != nil {
			return at, err
		}
	}
	return at, nil
}

// copied reads the frames that were copied from segments that are gone: all of them are
// older than those that were not.
func (r *Reader) copied(paths []string, w *Want, f func(*Frame) error) error {
	if !r.dir || len(paths) == 0 {
		return nil
	}
	oldest, _ := firstOf(paths[0])
	type copy struct {
		entry
		path string
	}
	var all []copy
	for _, p := range paths {
		first, _ := firstOf(p)
		file, c, _, err := r.look(p, func(c *contents) bool { return c.oldest < first && c.during(w) })
		if err != nil {
			return err
		}
		if file == nil {
			continue
		}
		any := false
		for _, e := range c.entries {
			if e.Seq < min(first, oldest) && e.Kind.counted() && w.stream(e.Stream) {
				all, any = append(all, copy{e, p}), true
			}
		}
		if any {
			r.learn(file, c, w)
		}
		file.Close()
	}
	slices.SortFunc(all, func(a, b copy) int { return cmp.Compare(a.Seq, b.Seq) })
	var file *os.File
	var err error
	for i := range all {
		c := &all[i]
		if i > 0 && c.Seq == all[i-1].Seq { // copied twice
			continue
		}
		if file == nil || file.Name() != c.path {
			if file != nil {
				file.Close()
			}
			if file, err = os.Open(c.path); err != nil {
				file = nil
				continue
			}
		}
		if r.chain(&c.Frame); !w.frame(&c.Frame) {
			continue
		}
		if err = r.hand(file, &c.entry, f, new([]byte)); err != nil {
			break
		}
	}
	if file != nil {
		file.Close()
	}
	return err
}

// native reads the frames that were written to a segment first.
func (r *Reader) native(path string, w *Want, f func(*Frame) error) (at place, err error) {
	at.path = path
	file, c, closed, err := r.look(path, func(c *contents) bool { return c.during(w) })
	if err != nil || file == nil {
		return at, err
	}
	defer file.Close()
	if c.entries == nil {
		clear(r.last) // its frames are not read: numbers that follow are not a gap
	}
	r.damage.Bytes += c.skipped
	first := uint64(0)
	if r.dir || r.own {
		first, _ = firstOf(path)
	}
	r.learn(file, c, w)
	if !r.dir { // copied frames are older than the rest
		slices.SortStableFunc(c.entries, func(a, b entry) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	var buf []byte
	for i := range c.entries {
		e := &c.entries[i]
		if e.Seq < first || !e.Kind.counted() || !w.stream(e.Stream) {
			continue
		}
		r.chain(&e.Frame)
		if !w.frame(&e.Frame) {
			continue
		}
		if err := r.hand(file, e, f, &buf); err != nil {
			return at, err
		}
	}
	at.done = closed
	for i := range c.entries {
		at.off = max(at.off, c.entries[i].off+c.entries[i].size)
	}
	return at, nil
}

// hand reads a frame and hands it on. One that is damaged is counted and left out.
func (r *Reader) hand(file io.ReaderAt, e *entry, f func(*Frame) error, buf *[]byte) error {
	if int64(cap(*buf)) < e.size {
		*buf = make([]byte, e.size)
	}
	got, err := readFrame(file, e, *buf)
	if err != nil {
		r.damage.Bytes += e.size
		r.damage.Gaps++
		return nil
	}
	return f(&got)
}

// chain counts a gap where frames before this one are missing.
func (r *Reader) chain(got *Frame) {
	if last := r.last[got.Stream]; last != 0 && got.Prev != 0 && got.Prev != last {
		r.damage.Gaps++
	}
	r.last[got.Stream] = got.Seq
}

// followEvery is how often a reader that follows looks for more.
const followEvery = 100 * time.Millisecond

// Follow is Frames, and goes on with what is written until ctx ends. Idle is called when
// there is nothing more for now.
func (r *Reader) Follow(ctx context.Context, w *Want, f func(*Frame) error, idle func() error) error {
	at, err := r.frames(w, f)
	if err != nil {
		return err
	}
	for {
		if err := idle(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		if at, err = r.more(at, w, f); err != nil {
			return err
		}
	}
}

// more reads what was written since.
func (r *Reader) more(at place, w *Want, f func(*Frame) error) (place, error) {
	// List the segments first: once there is a later segment, nothing is added to
	// this one.
	paths, err := r.paths()
	if err != nil {
		return at, err
	}
	if !at.done {
		if at, err = r.tail(at, w, f); err != nil {
			return at, err
		}
	}
	for _, p := range paths {
		if p <= at.path {
			continue
		}
		at = place{path: p}
		if at, err = r.tail(at, w, f); err != nil {
			return at, err
		}
	}
	return at, nil
}

// tail reads on where it stopped. Frames that were copied have been read before.
func (r *Reader) tail(at place, w *Want, f func(*Frame) error) (place, error) {
	file, err := os.Open(at.path)
	if errors.Is(err, fs.ErrNotExist) {
		at.done = true
		return at, nil
	}
	if err != nil {
		return at, err
	}
	defer file.Close()
	first, _ := firstOf(at.path)
	s := newScanner(file, at.off)
	for {
		got, e, err := s.next()
		at.off = s.off
		if err == io.EOF {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		switch {
		case got.Kind == index:
			at.done = true
		case got.Kind == Schema && r.schemas[got.Schema] == nil:
			r.schemas[got.Schema] = slices.Clone(got.Data)
		case got.Kind == Names && w.Names != nil:
			w.Names(got.Data)
		case e.Seq >= first && w.frame(&got):
			r.chain(&got)
			if err := f(&got); err != nil {
				return at, err
			}
		}
	}
}
