// SPDX-License-Identifier: Apache-2.0

// Package sink writes rows: one file for each output format.
//
// A sink gathers what it writes and hands it on with each End, so that a pipe
// sees the rows of a batch at once. The error of a write is returned as it is,
// so that a closed pipe can be told from a full disk.
package sink

import (
	"fmt"
	"io"
	"slices"
	"time"

	"seine/internal/row"
)

// Options say what is written and where to. The zero value writes every schema
// that comes along, in the format's default columns.
type Options struct {
	// Schemas of the rows to come. Formats that say what they hold before the
	// first row (a table's head, CSV) need them.
	Schemas []*row.Schema
	// Columns as Choose returned them; nil when --columns was not given.
	Columns map[*row.Schema][]int
	// Graph is what the format dot draws.
	Graph Graph

	// Plot is what the formats svg and png draw.
	Plot Plot
	// Book may change a row before the format book writes it; nil: as it is.
	Book func(*row.Row)

	// The rest is for tables.

	Time       string    // clock (default), micro, iso, rel, unix, none
	Start      time.Time // of the run, for rel
	Interval   bool      // rows come in outputs, one for each tick
	Terminal   bool      // control codes may be used
	Clear      bool      // clear the screen before each output; only on a terminal
	Height     int       // lines of the terminal: the head is repeated when it has scrolled away
	HideHeader bool
	// Above gives a line to stand above an output, after its time: a load
	// average. May be nil.
	Above func(time.Time) string
	// Netns gives the name of a network namespace, "" if it has none: tables show
	// it in place of the inode. May be nil.
	Netns func(inode uint64) string
	// Zone of clock and iso times; nil is the local one.
	Zone *time.Location
}

// maker makes the sink of one format.
type maker func(*writer, Options) (row.Sink, error)

var makers = map[string]maker{
	"table":  newTable,
	"json":   newJSON,
	"csv":    newCSV,
	"folded": newFolded,
	"dot":    newDot,
	"book":   newBook,
	"svg":    newSVG,
	"png":    newPNG,

	"parquet": newParquet,
	"pcapng":  newPcapng,
}

// Formats lists the formats that New knows.
func Formats() []string {
	return []string{"table", "json", "csv", "folded", "dot", "book", "svg", "png", "parquet", "pcapng"}
}

// New returns the sink that writes rows to w in the named format. Called with an
// End that closes nothing, as soon as the tool is ready, it writes its head if that
// does not depend on the rows to come.
func New(format string, w io.Writer, o Options) (row.Sink, error) {
	m := makers[format]
	if m == nil {
		if near := row.Nearest(format, Formats()); near != "" {
			return nil, fmt.Errorf("unknown output format %q: did you mean %s?", format, near)
		}
		return nil, fmt.Errorf("unknown output format %q", format)
	}
	for _, s := range o.Schemas {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	return m(&writer{to: w, buf: make([]byte, 0, full+4096)}, o)
}

// check finds schemas that no format could write without ambiguity.
func check(s *row.Schema) error {
	hists := 0
	for i := range s.Columns {
		if s.Columns[i].IsHist() {
			hists++
		}
	}
	if hists > 1 {
		return fmt.Errorf("%s: a row can have one histogram, not %d", s.Tool, hists)
	}
	for i := range s.Columns {
		if hists == 1 && slices.Contains(members, s.Columns[i].ID) {
			return fmt.Errorf("%s: column %s has the name of a member of histograms", s.Tool, s.Columns[i].ID)
		}
	}
	return nil
}

// members of a histogram in JSON and CSV.
var members = []string{"unit", "count", "sum", "min", "max", "p50", "p90", "p99", "buckets", "lo", "hi"}

// timeColumn is the column that says when, -1 if there is none.
func timeColumn(s *row.Schema) int {
	if i := s.Index("time"); i >= 0 && s.Columns[i].Kind == row.Time {
		return i
	}
	return -1
}

// full is the number of bytes at which a buffer is written out though its
// batch has not ended.
const full = 64 << 10

// writer gathers bytes. Sinks append to buf.
type writer struct {
	to  io.Writer
	buf []byte
	err error // the first failure; nothing is written after it
}

// room writes the buffer out if it is full. Called after each row.
func (w *writer) room() error {
	if len(w.buf) < full {
		return w.err
	}
	return w.flush()
}

func (w *writer) flush() error {
	if len(w.buf) > 0 && w.err == nil {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
}

// plans keeps what a sink has worked out for each schema.
type plans[T any] struct {
	make func(*row.Schema) (*T, error)
	all  map[*row.Schema]*T
	last *row.Schema
	plan *T
}

func (p *plans[T]) of(s *row.Schema) (*T, error) {
	if s == p.last {
		return p.plan, nil
	}
	plan, ok := p.all[s]
	if !ok {
		var err error
		if plan, err = p.make(s); err != nil {
			return nil, err
		}
		if p.all == nil {
			p.all = map[*row.Schema]*T{}
		}
		p.all[s] = plan
	}
	p.last, p.plan = s, plan
	return plan, nil
}
