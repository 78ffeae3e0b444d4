// SPDX-License-Identifier: Apache-2.0

// Package golden reads the rows that every tool keeps in testdata/rows.jsonl.
package golden

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// Rows reads the rows of a tool, with its names made. Tools is the folder of the tools.
func Rows(tools, name string, schemas []*row.Schema) ([]*row.Row, error) {
	lines, err := os.ReadFile(filepath.Join(tools, name, "testdata", "rows.jsonl"))
	if err != nil {
		return nil, err
	}
	var rows []*row.Row
	for i, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		r, err := parseRow(schemas, []byte(line))
		if err != nil {
			return nil, fmt.Errorf("rows.jsonl line %d: %w", i+1, err)
		}
		if r != nil {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// parseRow makes a row from an object in the form of the JSON sink, except that a
// histogram is a list of its values and a frame may have a short form. It is nil if the
// row's view is not among schemas.
func parseRow(schemas []*row.Schema, line []byte) (*row.Row, error) {
	var cells map[string]json.RawMessage
	if err := json.Unmarshal(line, &cells); err != nil {
		return nil, err
	}
	s := schemas[0]
	if view, ok := cells["view"]; ok {
		i := slices.IndexFunc(schemas, func(s *row.Schema) bool { return string(view) == fmt.Sprintf("%q", s.View) })
		if i < 0 {
			return nil, nil
		}
		s = schemas[i]
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
	if col.Unit != "" {
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
