// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
)

// TestGolden renders testdata/rows.jsonl of every tool through every format
// that it writes. UPDATE=1 rewrites the golden files.
func TestGolden(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		cfg := tl.NewConfig()
		views := tl.Views(cfg)
		schemas, err := tl.Schemas(views)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(filepath.Join(tl.Name, "testdata", "rows.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var rows []*row.Row
		for i, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
			r, err := parseRow(schemas, []byte(line))
			if err != nil {
				t.Fatalf("rows.jsonl line %d: %v", i+1, err)
			}
			rows = append(rows, r)
		}
		for _, format := range append([]string{"table", "json", "csv"}, tl.Formats...) {
			for _, s := range schemas {
				if format == "folded" && !slices.ContainsFunc(s.Columns, isStack) {
					continue // of a tool whose other views have stacks
				}
				name := format
				if s.View != "" {
					name = s.View + "-" + format
				}
				t.Run(name, func(t *testing.T) { golden(t, tl, views[0], s, rows, format, name) })
			}
		}
	})
}

func isStack(c row.Column) bool { return strings.HasSuffix(c.ID, "stack") }

func golden(t *testing.T, tl *tool.Tool, v tool.View, s *row.Schema, rows []*row.Row, format, name string) {
	var out bytes.Buffer
	o := sink.Options{
		Schemas: []*row.Schema{s}, Time: v.Time, Start: time.Date(2026, 11, 14, 23, 36, 0, 0, time.UTC),
		Interval: tl.Kind(tl.NewConfig()) != tool.Events, Zone: time.UTC, Book: v.Book,
	}
	if g := tl.Graph; g != nil {
		o.Graph = sink.Graph{From: g.From, To: g.To, Sum: g.Sum, Noun: g.Unit}
	}
	if tl.Plot != nil {
		o.Plot = sink.Plot(tl.Plot(tl.NewConfig()))
	}
	to, err := sink.New(format, &out, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Schema == s {
			if err := to.Row(r.Clone()); err != nil { // -o book empties some cells
				t.Fatal(err)
			}
		}
	}
	end := row.End{Time: time.Date(2026, 11, 14, 23, 37, 0, 0, time.UTC), Output: true, Last: true}
	if err := to.End(end); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tl.Name, "testdata", name+".golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, out.Bytes(), want)
	}
}

// parseRow makes a row of an object as the JSON sink writes it, except that a
// histogram is the list of its values and a frame may be short for itself.
func parseRow(schemas []*row.Schema, line []byte) (*row.Row, error) {
	var cells map[string]json.RawMessage
	if err := json.Unmarshal(line, &cells); err != nil {
		return nil, err
	}
	s := schemas[0]
	if view, ok := cells["view"]; ok {
		for _, c := range schemas {
			if string(view) == fmt.Sprintf("%q", c.View) {
				s = c
			}
		}
	}
	r := s.New()
	for id, raw := range cells {
		i := s.Index(id)
		switch {
		case id == "tool" || id == "view":
			continue
		case i < 0:
			return nil, fmt.Errorf("no column %s", id)
		}
		if err := parseCell(&s.Columns[i], raw, &r.Cells[i]); err != nil {
			return nil, fmt.Errorf("column %s: %w", id, err)
		}
	}
	return r, nil
}

func parseCell(col *row.Column, raw json.RawMessage, c *row.Cell) error {
	switch col.Kind {
	case row.Uint, row.Int:
		var n float64
		if err := json.Unmarshal(raw, &n); err != nil {
			return err
		}
		*c = row.Cell{Kind: col.Kind, N: uint64(int64(n*float64(col.Div) + math.Copysign(0.5, n)))}
	case row.Bool:
		var b bool
		if err := json.Unmarshal(raw, &b); err != nil {
			return err
		}
		c.Kind = row.Bool
		if b {
			c.N = 1
		}
	case row.Time:
		var t time.Time
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		*c = row.Cell{Kind: row.Time, N: uint64(t.UnixNano())}
	case row.Addr:
		var a netip.Addr
		if err := json.Unmarshal(raw, &a); err != nil {
			var path string // a UNIX socket's address is its path
			if json.Unmarshal(raw, &path) != nil {
				return err
			}
			c.SetText(path)
			return nil
		}
		b := a.As16()
		*c = row.Cell{Kind: row.Addr, S: string(b[:])}
	case row.Text:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		c.SetText(s)
	case row.Object:
		return parseObject(col, raw, c)
	}
	return nil
}

func parseObject(col *row.Column, raw json.RawMessage, c *row.Cell) error {
	c.Kind = row.Object
	if col.IsHist() {
		var values []uint64
		if err := json.Unmarshal(raw, &values); err != nil {
			return err
		}
		h := &kern.Hist{}
		for _, v := range values {
			h.Add(v)
		}
		c.Ref = h
		return nil
	}
	var frames []json.RawMessage
	if err := json.Unmarshal(raw, &frames); err != nil {
		return err
	}
	st := &kern.Stack{}
	for i, raw := range frames {
		f, err := parseFrame(raw, i)
		if err != nil {
			return err
		}
		st.Frames = append(st.Frames, f)
	}
	c.Ref = st
	return nil
}

// parseFrame reads a frame as the JSON sink writes it, or "symbol@module".
func parseFrame(raw json.RawMessage, i int) (kern.Frame, error) {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		sym, mod, _ := strings.Cut(name, "@")
		return kern.Frame{Sym: sym, Off: uint64(16*i + 7), Module: mod}, nil
	}
	var f struct {
		Sym, Mod string
		Off      uint64
	}
	err := json.Unmarshal(raw, &f)
	return kern.Frame{Sym: f.Sym, Off: f.Off, Module: f.Mod}, err
}
