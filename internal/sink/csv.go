// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"strconv"
	"strings"

	"seine/internal/kern"
	"seine/internal/row"
)

// csvSink writes RFC 4180 lines, ended by a newline, with a head of ids first. Absent values are
// empty. Text is written unchanged, even if it begins with = or @: escaping for spreadsheets
// would change the data for everybody else.
type csvSink struct {
	*writer
	schema *row.Schema
	fields []csvField
	hist   int // column, -1 if rows have none: then the last three fields are a bucket
	stamp  stamp
}

type csvField struct {
	cell   int
	div    uint64
	object bool
}

func newCSV(w *writer, o Options) (row.Sink, error) {
	if len(o.Schemas) == 0 {
		return nil, errors.New("csv: no columns")
	}
	if len(o.Schemas) > 1 {
		views := make([]string, len(o.Schemas))
		for i, s := range o.Schemas {
			views[i] = s.View
		}
		return nil, errors.New("csv holds one kind of row: choose with --view " + strings.Join(views, " or "))
	}
	s := o.Schemas[0]
	c := &csvSink{writer: w, schema: s, hist: -1}
	columns := o.Columns[s]
	if columns == nil {
		columns = every(s)
	}
	for _, i := range columns {
		if s.Columns[i].IsHist() {
			c.hist = i
		}
		if s.Columns[i].Unit != "" {
			continue // an inner one is JSON's alone
		}
		c.head(s.Columns[i].ID)
		c.fields = append(c.fields, csvField{i, s.Columns[i].Div, s.Columns[i].Kind == row.Object})
	}
	if c.hist >= 0 {
		c.head("lo")
		c.head("hi")
		c.head("count")
	}
	c.buf[len(c.buf)-1] = '\n'
	return c, nil
}

func (c *csvSink) head(id string) { c.buf = append(appendCSV(c.buf, id), ',') }

func (c *csvSink) Row(r *row.Row) error {
	if r.Schema != c.schema {
		return errors.New("csv: rows of a second kind")
	}
	start := len(c.buf)
	b := c.buf
	for i, f := range c.fields {
		if i > 0 {
			b = append(b, ',')
		}
		cell := &r.Cells[f.cell]
		if f.object && cell.Kind != row.Object {
			continue // a stack that has not been found is absent, not its id
		}
		switch cell.Kind {
		case row.Uint, row.Int:
			b = appendNumber(b, cell, f.div)
		case row.Text:
			b = appendCSV(b, cell.S)
		case row.Addr:
			b = appendAddr(b, cell)
		case row.Bool:
			b = appendBool(b, cell)
		case row.Time:
			b = c.stamp.append(b, cell)
		case row.Object:
			switch o := cell.Ref.(type) {
			case *kern.Stack:
				b = appendCSV(b, stackLine(o))
			case row.JSON:
				b = appendCSV(b, string(o))
			}
		}
	}
	if c.hist >= 0 {
		c.buf = appendBuckets(b, start, r.Cells[c.hist].Ref, len(c.fields) > 0)
		return c.room()
	}
	if len(b) == start {
		b = append(b, '"', '"') // one empty field: readers skip an empty line
	}
	c.buf = append(b, '\n')
	return c.room()
}

func (c *csvSink) End(row.End) error { return c.flush() }

// appendBuckets writes a line for each bucket: the keys, which stand in b from
// start on, then lo, hi, count.
func appendBuckets(b []byte, start int, ref any, keyed bool) []byte {
	h, ok := ref.(*kern.Hist)
	if !ok {
		return b[:start]
	}
	keys := len(b)
	buckets := h.Buckets()
	for i, k := range buckets {
		if i > 0 {
			b = append(b, b[start:keys]...)
		}
		if keyed {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, k.Lo, 10)
		b = strconv.AppendUint(append(b, ','), k.Hi, 10)
		b = strconv.AppendUint(append(b, ','), k.Count, 10)
		b = append(b, '\n')
	}
	if len(buckets) == 0 {
		return b[:start]
	}
	return b
}

// stackLine is the frames in one field, innermost first.
func stackLine(s *kern.Stack) string {
	var b []byte
	for i := range s.Frames {
		if i > 0 {
			b = append(b, ';')
		}
		b = appendFrame(b, &s.Frames[i])
	}
	return string(b)
}

func appendCSV(b []byte, s string) []byte {
	if strings.IndexByte(s, ',') < 0 && strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\n') < 0 && strings.IndexByte(s, '\r') < 0 {
		return appendValid(b, s)
	}
	b = append(b, '"')
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			break
		}
		b = append(appendValid(b, s[:i]), '"', '"')
		s = s[i+1:]
	}
	return append(appendValid(b, s), '"')
}
