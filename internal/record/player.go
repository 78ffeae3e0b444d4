// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"seine/internal/journal"
	"seine/internal/row"
)

// A Recording is one that is being read.
type Recording struct {
	path    string
	journal *journal.Reader
	schemas map[uint64]*Schema // nil: the data is not a valid schema
	names   Names
	broken  int // damaged blocks
}

// Read opens the recording at path: a directory, or one file.
func Read(path string) (*Recording, error) { return read(path, journal.Open) }

// ReadSegment opens one segment, without the frames that were copied into it from others.
func ReadSegment(path string) (*Recording, error) { return read(path, journal.OpenSegment) }

func read(path string, open func(string) (*journal.Reader, error)) (*Recording, error) {
	j, err := open(path)
	if err != nil {
		return nil, err
	}
	return &Recording{path: path, journal: j, schemas: map[uint64]*Schema{}, names: NewNames()}, nil
}

// Damage is what could not be read so far.
func (r *Recording) Damage() journal.Damage {
	d := r.journal.Damage()
	d.Gaps += r.broken
	return d
}

// Names are the names for the rows that were read so far.
func (r *Recording) Names() *Names { return &r.names }

// Contents is what a recording holds of one stream.
type Contents struct {
	Source
	Machine Machine
	journal.Summary
	Schemas []*Schema
}

// Span is the time from the first row to the last.
func (r *Recording) Span() (from, to time.Time, err error) {
	sums, err := r.journal.Summaries()
	var all journal.Summary
	for _, s := range sums {
		if s.Min != 0 && (all.Min == 0 || s.Min < all.Min) {
			all.Min = s.Min
		}
		all.Max = max(all.Max, s.Max)
	}
	return time.Unix(0, all.Min), time.Unix(0, all.Max), err
}

// want is the frames that a query reads.
func (q *Query) want() *journal.Want {
	w := &journal.Want{Streams: q.Streams}
	if !q.Since.IsZero() {
		w.Min = q.Since.UnixNano()
	}
	if !q.Until.IsZero() {
		w.Max = q.Until.UnixNano()
	}
	return w
}

// Contents lists the streams that have rows in the range of q, by name.
func (r *Recording) Contents(q *Query) ([]*Contents, error) {
	data, streams, err := r.journal.Schemas(q.want())
	if err != nil {
		return nil, err
	}
	sums, err := r.journal.Summaries()
	if err != nil {
		return nil, err
	}
	all := map[uint64]*Contents{}
	for id := range data {
		s := r.schema(id)
		if s == nil {
			continue
		}
		c := all[streams[id]]
		if c == nil {
			c = &Contents{Source: s.Source, Machine: s.Machine}
			if sum := sums[streams[id]]; sum != nil {
				c.Summary = *sum
			}
			c.Stream = streams[id]
			all[c.Stream] = c
		}
		c.Schemas = append(c.Schemas, s)
	}
	var out []*Contents
	for _, c := range all {
		slices.SortFunc(c.Schemas, func(a, b *Schema) int { return cmp.Compare(string(a.bytes()), string(b.bytes())) })
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Contents) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (r *Recording) schema(id uint64) *Schema {
	s, ok := r.schemas[id]
	if !ok {
		if b := r.journal.Schema(id); b != nil {
			s, _ = parseSchema(b)
		}
		r.schemas[id] = s
	}
	return s
}

// A Query says what to play.
type Query struct {
	Streams      map[uint64]bool // nil: all
	Since, Until time.Time       // rows from Since on and before Until; zero: no limit
	// Into says which schema rows of s are to have; nil: they are not wanted.
	Into func(s *Schema) *row.Schema
	// Use is the columns to read; nil: all. Others stay absent.
	Use map[string]bool
	// Follow goes on reading what is written until the context ends.
	Follow bool
}

// A Listener is told what was recorded, in the order in which it happened.
type Listener interface {
	Row(r *row.Row) error // valid until it returns
	Mark(s *Schema, m *Mark) error
	Idle() error // there is nothing more for now
}

// Play reads the recording.
func (r *Recording) Play(ctx context.Context, q *Query, to Listener) error {
	p := &player{rec: r, q: q, to: to, blocks: map[uint64]*block{}}
	want := q.want()
	want.Names, p.min, p.max = r.names.add, want.Min, want.Max
	frame := func(f *journal.Frame) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return p.frame(f)
	}
	if q.Follow {
		return r.journal.Follow(ctx, want, frame, func() error {
			if err := p.emitAll(); err != nil {
				return err
			}
			return to.Idle()
		})
	}
	if err := r.journal.Frames(want, frame); err != nil {
		return err
	}
	return p.emitAll()
}

// player puts frames that were written together back into the order of their rows.
type player struct {
	rec      *Recording
	q        *Query
	to       Listener
	min, max int64
	groups   map[uint64]*group // of each stream, the one that is being gathered
	blocks   map[uint64]*block // of each schema, reused
}

// group is frames that were written together.
type group struct {
	id     uint64
	need   uint64
	got    uint64
	blocks []*block
	marks  []Mark
	schema *Schema // of the marks

	batches []uint64 // ordinals behind which one ends
	first   *Schema
}

func (p *player) frame(f *journal.Frame) error {
	s := p.rec.schema(f.Schema)
	if s == nil {
		p.rec.broken++
		return nil
	}
	d := journal.Decoder{B: f.Data}
	id, at, of := d.Uint(), d.Uint(), d.Uint()
	var batches []uint64
	if at == 0 {
		n, last := d.Uint(), uint64(0)
		if n > uint64(len(d.B)) {
			d.Bad = true
		}
		for ; n > 0 && !d.Bad; n-- {
			last += d.Uint()
			batches = append(batches, last)
		}
	}
	if d.Bad {
		p.rec.broken++
		return nil
	}
	if p.groups == nil {
		p.groups = map[uint64]*group{}
	}
	g := p.groups[f.Stream]
	if g == nil {
		g = &group{}
		p.groups[f.Stream] = g
	}
	if g.got > 0 && g.id != id {
		if err := p.emit(g); err != nil {
			return err
		}
	}
	g.id, g.need = id, of
	g.got++
	if at == 0 {
		g.batches, g.first = batches, s
	}
	var err error
	switch f.Kind {
	case journal.Marks:
		var marks []Mark
		if err = json.Unmarshal(d.B, &marks); err == nil {
			g.marks, g.schema = append(g.marks, marks...), s
		}
	case journal.Rows:
		err = p.rows(g, f, s, &d)
	}
	if err != nil {
		p.rec.broken++
	}
	if g.got == g.need {
		return p.emit(g)
	}
	return nil
}

// rows opens a block of rows for a group.
func (p *player) rows(g *group, f *journal.Frame, s *Schema, d *journal.Decoder) error {
	b, known := p.blocks[f.Schema]
	if !known {
		b = p.newBlock(s)
		p.blocks[f.Schema] = b
	}
	if b == nil {
		return nil
	}
	if slices.Contains(g.blocks, b) { // two of one schema are never written together
		return errBad
	}
	size := d.Uint()
	if d.Bad || size > maxRaw {
		return errBad
	}
	raw, err := journal.Decompress(b.raw, d.B, int(size))
	if err != nil {
		return err
	}
	if b.raw = raw; b.open(raw, len(s.Columns)) != nil {
		return errBad
	}
	g.blocks = append(g.blocks, b)
	return nil
}

// newBlock plans which columns of s are read, and into which cells; nil: its rows are not wanted.
func (p *player) newBlock(s *Schema) *block {
	to := p.q.Into(s)
	if to == nil {
		return nil
	}
	b := &block{row: to.New(), time: to.Index("time")}
	for i, t := range s.mapping(to) {
		if t < 0 || p.q.Use != nil && !p.q.Use[to.Columns[t].ID] && t != b.time {
			continue
		}
		c := cursor{to: t}
		if was, is := s.Columns[i].Div, max(to.Columns[t].Div, 1); was != is {
			c.mul, c.div = is, was
		}
		b.cursors = append(b.cursors, c)
		b.columns = append(b.columns, i)
	}
	return b
}

func (p *player) emitAll() error {
	for _, g := range p.groups {
		if g.got > 0 {
			if err := p.emit(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// emit hands on the rows and marks of a group, by their ordinals.
func (p *player) emit(g *group) error {
	blocks, marks, batches := g.blocks, g.marks, g.batches
	g.got, g.blocks, g.marks, g.batches = 0, g.blocks[:0], g.marks[:0], nil
	for {
		var b *block
		for _, o := range blocks {
			if o.at < o.n && (b == nil || o.ordinal < b.ordinal) {
				b = o
			}
		}
		mark := len(marks) > 0 && (b == nil || marks[0].Ordinal < b.ordinal)
		if len(batches) > 0 && (b == nil || batches[0] <= b.ordinal) && (!mark || batches[0] <= marks[0].Ordinal) {
			batches = batches[1:]
			if err := p.to.Mark(g.first, &Mark{Kind: Batch}); err != nil {
				return err
			}
			continue
		}
		if mark {
			m := &marks[0]
			marks = marks[1:]
			if p.during(m.Time) {
				if err := p.to.Mark(g.schema, m); err != nil {
					return err
				}
			}
			continue
		}
		if b == nil {
			return nil
		}
		if ok, err := b.next(); err != nil || !ok {
			p.rec.broken++
			b.at = b.n
			continue
		}
		if b.time >= 0 {
			if c := &b.row.Cells[b.time]; c.Kind == row.Time && !p.during(int64(c.N)) {
				continue
			}
		}
		if err := p.to.Row(b.row); err != nil {
			return err
		}
	}
}

func (p *player) during(t int64) bool {
	return (p.min == 0 || t >= p.min) && (p.max == 0 || t < p.max)
}
