// SPDX-License-Identifier: Apache-2.0

// Package record writes rows of tools into a journal and reads them again, on any
// machine and by any later version: cells as they were, names that were seen, ends of outputs and
// losses.
package record

import (
	"encoding/json"
	"slices"
	"time"

	"seine/internal/row"
)

// A Machine is where rows were recorded.
type Machine struct {
	Host    string `json:"host,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Arch    string `json:"arch,omitempty"`
	Boot    string `json:"boot,omitempty"`    // id of the boot
	Version string `json:"version,omitempty"` // of seine
}

// A Source is a tool as it was run.
type Source struct {
	Name     string            `json:"stream"`             // what tells streams of a recording apart: the tool and its flags
	Tool     string            `json:"tool"`               // its name
	Flags    []string          `json:"flags,omitempty"`    // as they were given
	Config   map[string]string `json:"config,omitempty"`   // values of the tool's own flags
	Filters  []string          `json:"filters,omitempty"`  // flags that are filters
	By       []string          `json:"by,omitempty"`       // keys that a counting tool counted by
	Interval time.Duration     `json:"interval,omitempty"` // between outputs; 0: none but the last
}

// A Schema is what rows of one kind look like: the data of a schema frame. Its bytes make
// its id, so equal ones are the same.
type Schema struct {
	Source
	View    string   `json:"view,omitempty"`
	Machine Machine  `json:"machine"`
	Columns []Column `json:"columns"`

	raw []byte // as it was recorded
}

// A Column is the part of a row.Column that is needed to understand rows.
type Column struct {
	ID   string   `json:"id"`
	Kind row.Kind `json:"kind"`
	Div  uint64   `json:"div,omitempty"`
	Unit string   `json:"unit,omitempty"`
	Sum  bool     `json:"sum,omitempty"`
	Idle bool     `json:"idle,omitempty"` // it has no values, since it was not counted by
	// Inner says that a histogram is one value of many. Recordings of older versions do not say it.
	Inner bool `json:"inner,omitempty"`
}

func schemaOf(src *Source, m Machine, s *row.Schema) *Schema {
	out := &Schema{Source: *src, View: s.View, Machine: m}
	for i := range s.Columns {
		c := &s.Columns[i]
		col := Column{ID: c.ID, Kind: c.Kind, Unit: c.Unit, Sum: c.Sum, Idle: c.Idle, Inner: c.Inner}
		if c.Div != 1 {
			col.Div = c.Div
		}
		out.Columns = append(out.Columns, col)
	}
	return out
}

func (s *Schema) bytes() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers always work
	}
	return b
}

// maxColumns is more than any schema has.
const maxColumns = 4096

func parseSchema(b []byte) (*Schema, error) {
	s := &Schema{raw: b}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, err
	}
	if len(s.Columns) > maxColumns {
		return nil, errBad
	}
	for i := range s.Columns {
		s.Columns[i].Div = max(s.Columns[i].Div, 1)
	}
	return s, nil
}

// Row makes a row.Schema from the recorded one, for callers that do not know the tool's own.
func (s *Schema) Row() *row.Schema {
	out := &row.Schema{Tool: s.Tool, View: s.View}
	for i, c := range s.Columns {
		out.Columns = append(out.Columns, row.Column{ID: c.ID, Head: c.ID, Kind: c.Kind, Div: c.Div, Scale: 1, Unit: c.Unit, Sum: c.Sum, Idle: c.Idle, Inner: c.Inner,
			Left: c.Kind != row.Uint && c.Kind != row.Int})
		out.Show = append(out.Show, i)
	}
	return out
}

// Has says whether rows have values in a column.
func (s *Schema) Has(id string) bool {
	return slices.ContainsFunc(s.Columns, func(c Column) bool { return c.ID == id && !c.Idle })
}

// mapping says which column of to each column of s is; -1: none. A column that was renamed
// names its old id.
func (s *Schema) mapping(to *row.Schema) []int {
	out := make([]int, len(s.Columns))
	for i := range s.Columns {
		id := s.Columns[i].ID
		if out[i] = to.Index(id); out[i] < 0 {
			out[i] = slices.IndexFunc(to.Columns, func(c row.Column) bool { return slices.Contains(c.Was, id) })
		}
	}
	return out
}
