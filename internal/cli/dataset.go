// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/sink"
)

// A dataset holds the segments of a recording as Parquet files, which other engines can query
// in place: tool=T/date=D/*.parquet. A goroutine of its own converts segment by segment. The
// files count against the recording's budget.
type dataset struct {
	dir  string
	room func() bool // makes room in the budget for the reserved bytes; false: it cannot
	fail func(error) // called if a segment could not be written

	mu       sync.Mutex
	files    []datasetFile // the oldest first
	taken    int64
	reserved int64
	queue    []queued
	wake     chan struct{}
	wait     sync.WaitGroup
}

// queued is a segment to write, and the bytes that are reserved for it.
type queued struct {
	path string
	room int64
}

type datasetFile struct {
	path string
	size int64
	at   time.Time // when it was written
}

// partial is the suffix of incomplete files.
const partial = ".part"

// openDataset lists the existing files and deletes incomplete ones of an earlier process.
func openDataset(dir string) (*dataset, error) {
	d := &dataset{dir: dir, wake: make(chan struct{}, 1), fail: func(error) {}, room: func() bool { return true }}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if strings.HasSuffix(path, partial) {
			return os.Remove(path)
		}
		st, err := e.Info()
		if err == nil && strings.HasSuffix(path, ".parquet") {
			d.add(path, st)
		}
		return err
	})
	slices.SortFunc(d.files, func(a, b datasetFile) int { return a.at.Compare(b.at) })
	return d, err
}

func (d *dataset) add(path string, st fs.FileInfo) {
	d.files = append(d.files, datasetFile{path, blocksOf(st.Size()), st.ModTime()})
	d.taken += blocksOf(st.Size())
}

func blocksOf(n int64) int64 { return (n + 4095) / 4096 * 4096 }

// others is the size of all files, including those about to be written.
func (d *dataset) others() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken + d.reserved
}

// free deletes the oldest file if it is older than before.
func (d *dataset) free(before time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.files) == 0 || !d.files[0].at.Before(before) {
		return false
	}
	f := d.files[0]
	d.files = d.files[1:]
	d.taken -= f.size
	if os.Remove(f.path) == nil {
		os.Remove(filepath.Dir(f.path)) // the directory of the date, if it is empty now
	}
	return true
}

// datasetRatio is the expected size of the Parquet files relative to their segment. More room
// is made if they need it.
const datasetRatio = 2

// closed queues a complete segment. It does not convert it, because the recorder is waiting.
func (d *dataset) closed(path string) {
	st, err := os.Stat(path)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.queue = append(d.queue, queued{path, datasetRatio * st.Size()})
	d.reserved += datasetRatio * st.Size()
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// start converts segments until stop is called. stop waits for the rest.
func (d *dataset) start() (stop func()) {
	done := make(chan struct{})
	d.wait.Go(func() {
		for {
			d.drain()
			select {
			case <-d.wake:
			case <-done:
				d.drain()
				return
			}
		}
	})
	return func() { close(done); d.wait.Wait() }
}

func (d *dataset) drain() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.mu.Unlock()
			return
		}
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		err := d.convert(&next)
		d.mu.Lock()
		d.reserved -= next.room
		d.mu.Unlock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was deleted to make room
			d.fail(fmt.Errorf("%s: %w", filepath.Base(next.path), err))
		}
	}
}

// reserve reserves more room for the files of a segment.
func (d *dataset) reserve(q *queued, n int64) error {
	d.mu.Lock()
	q.room += n
	d.reserved += n
	d.mu.Unlock()
	if !d.room() {
		return errors.New("it does not fit into the budget")
	}
	return nil
}

// convert writes the files of one segment. Their names derive from the segment's name, so that
// a second conversion replaces them.
func (d *dataset) convert(q *queued) error {
	d.room() // may delete this very segment
	rec, err := record.ReadSegment(q.path)
	if err != nil {
		return err
	}
	p := &parquetFiles{dir: d.dir, base: strings.TrimSuffix(filepath.Base(q.path), journal.Ext), schemas: map[*row.Schema]string{}, open: map[string]*parquetFile{}}
	written := int64(0)
	p.about = func(n int64) error {
		if written += n; written <= q.room {
			return nil
		}
		return d.reserve(q, written-q.room)
	}
	err = rec.Play(context.Background(), &record.Query{Into: p.into}, p)
	for _, key := range p.keys() {
		f := p.open[key]
		if err == nil {
			err = f.close()
		}
		if err != nil {
			f.file.Close()
			os.Remove(f.file.Name())
			continue
		}
		if st, serr := os.Stat(f.path); serr == nil {
			d.mu.Lock()
			d.add(f.path, st)
			d.mu.Unlock()
		}
	}
	return err
}

// parquetFiles are the files of one segment: one for each tool, view and day.
type parquetFiles struct {
	dir, base string
	schemas   map[*row.Schema]string // with the names of their files
	open      map[string]*parquetFile
	about     func(n int64) error // called before n bytes are written
}

type parquetFile struct {
	path  string
	file  *os.File
	about func(int64) error
	to    row.Sink
}

func (f *parquetFile) Write(b []byte) (int, error) {
	if err := f.about(int64(len(b))); err != nil {
		return 0, err
	}
	return f.file.Write(b)
}

func (p *parquetFiles) keys() []string {
	var out []string
	for k := range p.open {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (p *parquetFiles) into(s *record.Schema) *row.Schema {
	to := s.Row()
	p.schemas[to] = fmt.Sprintf("%s-%s%d", p.base, cmp.Or(s.View+"-", ""), len(p.schemas))
	return to
}

// Row writes a row into the file of its day.
func (p *parquetFiles) Row(r *row.Row) error {
	day := "unknown"
	if c := r.Get("time"); c != nil && c.Kind == row.Time {
		day = time.Unix(0, int64(c.N)).UTC().Format(time.DateOnly)
	}
	key := filepath.Join("tool="+r.Schema.Tool, "date="+day, strings.Trim(p.schemas[r.Schema], "-")+".parquet")
	f := p.open[key]
	if f == nil {
		if err := p.about(blocksOf(1)); err != nil { // the last block of a file may be partly used
			return err
		}
		f = &parquetFile{path: filepath.Join(p.dir, key), about: p.about}
		if err := os.MkdirAll(filepath.Dir(f.path), 0o750); err != nil {
			return err
		}
		var err error
		if f.file, err = os.OpenFile(f.path+partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640); err != nil {
			return err
		}
		p.open[key] = f
		if f.to, err = sink.New("parquet", f, sink.Options{Schemas: []*row.Schema{r.Schema}}); err != nil {
			return err
		}
	}
	return f.to.Row(r)
}

func (p *parquetFiles) Mark(*record.Schema, *record.Mark) error { return nil }
func (p *parquetFiles) Idle() error                             { return nil }

func (f *parquetFile) close() error {
	if err := f.to.End(row.End{Last: true}); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	if err := f.file.Close(); err != nil {
		return err
	}
	return os.Rename(f.path+partial, f.path)
}
