// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seine/internal/journal"
	"seine/internal/row"
)

// A Recorder writes rows of several tools into one recording.
type Recorder struct {
	journal *journal.Writer
	machine Machine
	names   bookOfNames
	lost    atomic.Uint64

	mu      sync.Mutex
	streams map[string][]uint64 // by tool
}

// Options of a Recorder.
type Options struct {
	journal.Options
	Machine Machine
	// Netns and User give the name of a network namespace and of a user, "" if there is
	// none. They are asked once for each. May be nil.
	Netns, User func(uint64) string
}

// Open opens the recording in dir for writing.
func Open(dir string, o Options) (*Recorder, error) {
	w, err := journal.OpenWriter(dir, o.Options)
	if err != nil {
		return nil, err
	}
	return &Recorder{journal: w, machine: o.Machine, names: bookOfNames{netns: o.Netns, user: o.User, known: NewNames()}}, nil
}

// Lost is how many rows could not be written.
func (r *Recorder) Lost() uint64 { return r.lost.Load() }

// Oldest is the start of what the recording has of each tool.
func (r *Recorder) Oldest() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]time.Time{}
	for tool, ids := range r.streams {
		for _, id := range ids {
			if at, ok := r.journal.Oldest(id); ok && (out[tool].IsZero() || at.Before(out[tool])) {
				out[tool] = at
			}
		}
	}
	return out
}

// MakeRoom deletes the oldest data until all is within the budget. False: it is still above it.
func (r *Recorder) MakeRoom() bool { return r.journal.MakeRoom() }

// Close ends the recording. Its streams must have ended.
func (r *Recorder) Close() error { return r.journal.Close() }

// Names are names that rows do not have themselves.
type Names struct {
	Netns map[uint64]string `json:"netns,omitempty"`
	Users map[uint64]string `json:"users,omitempty"`
}

// NewNames makes Names without an entry.
func NewNames() Names { return Names{Netns: map[uint64]string{}, Users: map[uint64]string{}} }

func (n *Names) add(b []byte) {
	var more Names
	if json.Unmarshal(b, &more) == nil {
		maps.Copy(n.Netns, more.Netns)
		maps.Copy(n.Users, more.Users)
	}
}

// bookOfNames notes the names of what rows refer to.
type bookOfNames struct {
	mu          sync.Mutex
	netns, user func(uint64) string
	known       Names
	seen        map[[2]uint64]bool
	fresh       bool // there are names that were not written
}

// mostNames is how many names are kept. If there are more, all are forgotten, and those that come
// again are noted anew.
const mostNames = 4096

// see notes the name of a value.
func (b *bookOfNames) see(what uint64, n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, into := b.netns, b.known.Netns
	if what == aUser {
		name, into = b.user, b.known.Users
	}
	key := [2]uint64{what, n}
	if name == nil || b.seen[key] {
		return
	}
	if b.seen == nil || len(b.seen) >= mostNames {
		b.seen = map[[2]uint64]bool{}
		clear(b.known.Netns)
		clear(b.known.Users)
	}
	b.seen[key] = true
	if s := name(n); s != "" {
		into[n] = s
		b.fresh = true
	}
}

const (
	aNetns = iota
	aUser
)

// news is all names, if there are new ones; else nil.
func (b *bookOfNames) news() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fresh {
		return nil
	}
	b.fresh = false
	out, err := json.Marshal(b.known)
	if err != nil {
		panic(err)
	}
	return out
}

// A Mark is something that happened between rows.
type Mark struct {
	Ordinal uint64        `json:"o,omitempty"` // its place among the rows of its flush
	Kind    string        `json:"k"`
	Time    int64         `json:"t"`
	Losses  []row.Loss    `json:"losses,omitempty"`
	Above   string        `json:"above,omitempty"` // the line above an output
	Rows    uint64        `json:"rows,omitempty"`  // that were dropped
	Every   time.Duration `json:"every,omitempty"` // interval of a start
}

// Kinds of marks.
const (
	Start   = "start"   // the tool is ready
	Output  = "output"  // an output is complete
	Last    = "last"    // the tool has ended
	Losses  = "losses"  // events were lost
	Dropped = "dropped" // rows could not be written
	Batch   = "batch"   // so many events for now: a table takes its widths from the first ones
)

// flushAfter is how long rows wait before they are written. A crash loses as much.
const flushAfter = time.Second

// A Stream is the sink for rows of one run of a tool. The names of the rows are resolved.
type Stream struct {
	rec     *Recorder
	src     Source
	id      uint64
	above   func(time.Time) string
	said    string   // the line above the output
	has     bool     // said is set
	ended   bool     // the output that said belongs to has ended
	tables  []*table // in the order of their first row
	by      map[*row.Schema]*table
	marks   []Mark
	batches []uint64  // ordinals of the rows that come first after the end of a batch
	fresh   bool      // a row came since
	ordinal uint64    // of the next row or mark of this flush
	since   time.Time // the first of them
	any     uint64    // a schema of the stream, for marks
	dropped uint64    // rows, since it was last told
	now     func() time.Time
	buf     []byte
}

// table gathers rows of one schema.
type table struct {
	id      uint64
	columns []column
	ords    []uint64
	n       int
	size    int // about how many bytes
	time    int // columns; -1: none
	netns   int
	uid     int
	min     int64
	max     int64
	lastNs  uint64
	lastUID uint64
}

// Stream begins a stream for a run whose rows are of these schemas. Above gives the line
// above an output, nil if there is none.
func (r *Recorder) Stream(src Source, schemas []*row.Schema, above func(time.Time) string) *Stream {
	s := &Stream{rec: r, src: src, id: journal.Stream(src.Name), above: above, by: map[*row.Schema]*table{}, now: time.Now}
	for _, sc := range schemas {
		s.any = s.table(sc, schemaOf(&src, r.machine, sc).bytes()).id
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams == nil {
		r.streams = map[string][]uint64{}
	}
	if !slices.Contains(r.streams[src.Tool], s.id) {
		r.streams[src.Tool] = append(r.streams[src.Tool], s.id)
	}
	return s
}

// Start says that the tool is ready: seconds since the start count from here. It is written
// at once, so that there is a recording from now on.
func (s *Stream) Start(at time.Time) {
	s.mark(Mark{Kind: Start, Time: at.UnixNano(), Every: s.src.Interval})
	s.flush()
}

func (s *Stream) table(sc *row.Schema, data []byte) *table {
	t := &table{id: s.rec.journal.Schema(s.id, data), columns: make([]column, len(sc.Columns)), time: sc.Index("time"), netns: sc.Index("netns"), uid: sc.Index("uid")}
	s.by[sc] = t
	s.tables = append(s.tables, t)
	return t
}

// Above is the line above the current output, or above the one that has just ended. It is the
// same for all callers.
func (s *Stream) Above(t time.Time) string {
	if s.above != nil && !s.has {
		s.said, s.has = s.above(t), true
	}
	return s.said
}

// begins forgets the line above the output before.
func (s *Stream) begins() {
	if s.ended {
		s.said, s.has, s.ended = "", false, false
	}
}

// Row takes one row.
func (s *Stream) Row(r *row.Row) error {
	s.begins()
	t := s.by[r.Schema]
	if t == nil {
		t = s.table(r.Schema, schemaOf(&s.src, s.rec.machine, r.Schema).bytes())
	}
	for i := range t.columns {
		if err := t.columns[i].put(&r.Cells[i]); err != nil {
			return err
		}
	}
	t.note(r, s.rec)
	if t.n++; s.ordinal == 0 {
		s.since = s.now()
	}
	t.ords = append(t.ords, s.ordinal)
	s.ordinal++
	s.fresh = true
	if t.n == MaxRows || t.size > fullRaw {
		s.flush()
	}
	return nil
}

// note notes the time of the row, the names that go with it, and how large it is.
func (t *table) note(r *row.Row, rec *Recorder) {
	at := int64(0)
	if t.time >= 0 && r.Cells[t.time].Kind == row.Time {
		at = int64(r.Cells[t.time].N)
	}
	if t.n == 0 {
		t.min, t.max = at, at
	}
	t.min, t.max = min(t.min, at), max(t.max, at)
	if c := t.cell(r, t.netns); c != nil && c.N != t.lastNs {
		t.lastNs = c.N
		rec.names.see(aNetns, c.N)
	}
	if c := t.cell(r, t.uid); c != nil && (c.N != t.lastUID || t.n == 0) {
		t.lastUID = c.N
		rec.names.see(aUser, c.N)
	}
	t.size = 0
	for i := range t.columns {
		t.size += len(t.columns[i].dict)
	}
	t.size += t.n * len(t.columns)
}

func (t *table) cell(r *row.Row, i int) *row.Cell {
	if i < 0 || r.Cells[i].Kind != row.Uint {
		return nil
	}
	return &r.Cells[i]
}

func (s *Stream) mark(m Mark) {
	if s.ordinal == 0 {
		s.since = s.now()
	}
	m.Ordinal = s.ordinal
	s.ordinal++
	s.marks = append(s.marks, m)
}

// End notes the end of an output, and losses; rows are written once a second.
func (s *Stream) End(e row.End) error {
	at := e.Time
	if at.IsZero() {
		at = s.now()
	}
	m := Mark{Time: at.UnixNano(), Losses: e.Losses}
	if e.Output {
		s.begins()
		m.Above, s.ended = s.Above(e.Time), true
	}
	switch {
	case e.Last:
		m.Kind = Last
	case e.Output:
		m.Kind = Output
	case len(e.Losses) > 0:
		m.Kind = Losses
	}
	if m.Kind != "" {
		s.mark(m)
	} else if s.fresh && s.ordinal > 0 {
		s.batches = append(s.batches, s.ordinal)
	}
	s.fresh = false
	if s.ordinal > 0 && (e.Last || s.now().Sub(s.since) >= flushAfter) {
		s.flush()
	}
	return nil
}

// flush writes what has been gathered. What cannot be written is counted: recording goes on.
func (s *Stream) flush() {
	telling := s.dropped
	if telling > 0 {
		s.mark(Mark{Kind: Dropped, Time: s.now().UnixNano(), Rows: s.dropped})
	}
	if names := s.rec.names.news(); names != nil {
		s.rec.journal.Names(names)
	}
	frames := 0
	for _, t := range s.tables {
		if t.n > 0 {
			frames++
		}
	}
	if len(s.marks) > 0 {
		frames++
	}
	group := uint64(s.since.UnixNano())
	at := 0
	for _, t := range s.tables {
		if t.n == 0 {
			continue
		}
		f := &journal.Frame{Kind: journal.Rows, Stream: s.id, Schema: t.id, Min: t.min, Max: t.max, Rows: uint64(t.n)}
		raw := t.bytes(s.buf[:0])
		s.buf = raw
		f.Data = s.appendGroup(nil, group, at, frames)
		f.Data = binary.AppendUvarint(f.Data, uint64(len(raw)))
		f.Data = journal.Compress(f.Data, raw)
		at++
		if s.rec.journal.Put(f) != nil {
			s.dropped += uint64(t.n)
			s.rec.lost.Add(uint64(t.n))
		}
		t.reset()
	}
	if len(s.marks) > 0 {
		f := &journal.Frame{Kind: journal.Marks, Stream: s.id, Schema: s.any, Min: s.marks[0].Time, Max: s.marks[0].Time}
		for _, m := range s.marks {
			f.Min, f.Max = min(f.Min, m.Time), max(f.Max, m.Time)
		}
		b, err := json.Marshal(s.marks)
		f.Data = append(s.appendGroup(nil, group, at, frames), b...)
		if errors.Join(err, s.rec.journal.Put(f)) == nil {
			s.dropped -= telling
		}
		s.marks = s.marks[:0]
	}
	s.ordinal, s.batches = 0, s.batches[:0]
}

// Flush writes what has been gathered, now.
func (s *Stream) Flush() {
	if s.ordinal > 0 {
		s.flush()
	}
}

// appendGroup says which frames were written together, so that their rows come in order again.
// The first one also says where batches ended.
func (s *Stream) appendGroup(b []byte, group uint64, at, of int) []byte {
	b = binary.AppendUvarint(b, group)
	b = binary.AppendUvarint(b, uint64(at))
	b = binary.AppendUvarint(b, uint64(of))
	if at > 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(s.batches)))
	last := uint64(0)
	for _, n := range s.batches {
		b = binary.AppendUvarint(b, n-last)
		last = n
	}
	return b
}

// bytes is the block of the rows.
func (t *table) bytes(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(t.n))
	part := appendNumbers(nil, t.ords)
	b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	b = binary.AppendUvarint(b, uint64(len(t.columns)))
	for i := range t.columns {
		part = t.columns[i].append(part[:0])
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return b
}

func (t *table) reset() {
	for i := range t.columns {
		t.columns[i].reset()
	}
	t.ords, t.n, t.size = t.ords[:0], 0, 0
}
