// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"seine/internal/journal"
	"seine/internal/row"
)

// Cut copies what q asks for into one file, which can be read like a recording. It returns the
// number of rows.
func Cut(ctx context.Context, from *Recording, q *Query, file string) (rows uint64, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".seine-cut-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	rec, err := Open(dir, Options{Options: journal.Options{Segment: 1 << 62, Age: 1 << 62}})
	if err != nil {
		return 0, err
	}
	c := &copier{rec: rec, streams: map[string]*Stream{}, of: map[*row.Schema]*Stream{}}
	// Names come first: a first pass reads them.
	names := *q
	names.Into = func(*Schema) *row.Schema { return nil }
	if err := from.Play(ctx, &names, quiet{}); err != nil {
		rec.Close()
		return 0, err
	}
	b, err := json.Marshal(from.names)
	if err != nil {
		return 0, err
	}
	rec.journal.Names(b)
	again, err := Read(from.path)
	if err != nil {
		return 0, err
	}
	copied := *q
	copied.Into = c.into
	err = again.Play(ctx, &copied, c)
	for _, s := range c.streams {
		s.Flush()
	}
	if cerr := rec.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, err
	}
	if n := rec.Lost(); n > 0 {
		return 0, journal.ErrTooLarge
	}
	written, err := filepath.Glob(filepath.Join(dir, "*"+journal.Ext))
	if err != nil {
		return 0, err
	}
	if len(written) != 1 {
		return 0, errNothing
	}
	return c.rows, os.Rename(written[0], file)
}

// quiet listens to nothing.
type quiet struct{}

func (quiet) Row(*row.Row) error        { return nil }
func (quiet) Mark(*Schema, *Mark) error { return nil }
func (quiet) Idle() error               { return nil }

// copier writes what it is told into another recording, under the schemas that it had.
type copier struct {
	rec     *Recorder
	streams map[string]*Stream
	of      map[*row.Schema]*Stream
	rows    uint64
}

func (c *copier) into(s *Schema) *row.Schema {
	st := c.stream(s)
	to := s.Row()
	st.any = st.table(to, s.raw).id
	c.of[to] = st
	return to
}

func (c *copier) stream(s *Schema) *Stream {
	st := c.streams[s.Name]
	if st == nil {
		st = c.rec.Stream(s.Source, nil, nil)
		c.streams[s.Name] = st
	}
	return st
}

func (c *copier) Row(r *row.Row) error {
	c.rows++
	return c.of[r.Schema].Row(r)
}

func (c *copier) Mark(s *Schema, m *Mark) error {
	st := c.stream(s)
	if m.Kind == Batch {
		if st.fresh && st.ordinal > 0 {
			st.batches = append(st.batches, st.ordinal)
		}
		st.fresh = false
		return nil
	}
	if st.any == 0 {
		st.any = c.rec.journal.Schema(st.id, s.raw)
	}
	st.mark(*m)
	return nil
}

func (c *copier) Idle() error { return nil }
