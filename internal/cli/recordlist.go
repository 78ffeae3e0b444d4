// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"slices"

	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
)

// listRecording lists a recording: for each tool its time range, rows, bytes, lost events and
// gaps.
func listRecording(w io.Writer, path, format string) error {
	if !slices.Contains([]string{"table", "json", "csv"}, format) {
		return tool.Usagef("-o %s: --list writes table, json, csv", format)
	}
	rec, err := record.Read(path)
	if err != nil {
		return tool.Usagef("--list: %v", err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil {
		return err
	}
	s := &row.Schema{Tool: "record"}
	for i, c := range []row.Column{
		{ID: "time", Head: "FROM", Kind: row.Time, Width: 32}, {ID: "to", Head: "TO", Kind: row.Time, Width: 32},
		{ID: "rows", Head: "ROWS", Kind: row.Uint, Width: 10}, {ID: "bytes", Head: "BYTES", Kind: row.Uint, Width: 11},
		{ID: "lost", Head: "LOST", Kind: row.Uint, Width: 7}, {ID: "gaps", Head: "GAPS", Kind: row.Uint, Width: 5}, {ID: "runs", Head: "RUNS", Kind: row.Uint, Width: 5},
		{ID: "host", Head: "HOST", Kind: row.Text, Left: true, Width: 12}, {ID: "stream", Head: "TOOL", Kind: row.Text, Left: true},
	} {
		c.Div, c.Scale = 1, 1
		s.Columns, s.Show = append(s.Columns, c), append(s.Show, i)
	}
	out, err := sink.New(format, w, sink.Options{Schemas: []*row.Schema{s}, Time: "iso"})
	if err != nil {
		return err
	}
	for _, c := range all {
		var heard census
		one, err := record.Read(path)
		if err != nil {
			return err
		}
		q := &record.Query{Streams: map[uint64]bool{c.Stream: true}, Into: func(*record.Schema) *row.Schema { return nil }}
		if err := one.Play(context.Background(), q, &heard); err != nil {
			return err
		}
		r := s.New()
		for i, cell := range []row.Cell{
			{Kind: row.Time, N: uint64(c.Min)}, {Kind: row.Time, N: uint64(c.Max)}, {Kind: row.Uint, N: c.Rows}, {Kind: row.Uint, N: c.Bytes},
			{Kind: row.Uint, N: heard.lost}, {Kind: row.Uint, N: uint64(one.Damage().Gaps)}, {Kind: row.Uint, N: heard.runs},
			{Kind: row.Text, S: c.Machine.Host}, {Kind: row.Text, S: c.Name},
		} {
			r.Cells[i] = cell
		}
		if err := out.Row(r); err != nil {
			return err
		}
	}
	return out.End(row.End{Last: true})
}

// census counts lost events and runs.
type census struct{ lost, runs uint64 }

func (*census) Row(*row.Row) error { return nil }
func (*census) Idle() error        { return nil }
func (c *census) Mark(_ *record.Schema, m *record.Mark) error {
	for _, l := range m.Losses {
		c.lost += l.N
	}
	c.lost += m.Rows
	if m.Kind == record.Start {
		c.runs++
	}
	return nil
}
