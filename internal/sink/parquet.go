// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"seine/internal/kern"
	"seine/internal/row"
)

// parquetSink writes a Parquet file, for DuckDB, ClickHouse, Spark and pandas. Every
// column is optional. Times are microseconds in UTC, since Spark refuses nanoseconds, and time_ns has
// them whole. A file is whole when the run has ended: its footer comes last.
type parquetSink struct {
	schema *row.Schema
	out    *parquet.GenericWriter[any]
	fields []parquetField
	rows   []parquet.Row
	closed bool
}

// parquetField is one column of the schema, or a second one made of it.
type parquetField struct {
	cell  int
	leaf  int // the first of its leaves
	write func(to parquet.Row, c *row.Cell, leaf int) parquet.Row
	none  int // how many leaves are null where it is absent
}

// parquetBatch is how many rows are handed to the writer at once, and parquetGroup how many are
// kept in memory before they are written.
const (
	parquetBatch = 512
	parquetGroup = 64 << 10
)

func newParquet(w *writer, o Options) (row.Sink, error) {
	if o.Terminal {
		return nil, errors.New("parquet is not for a terminal: write it to a file with >")
	}
	if len(o.Schemas) != 1 {
		views := make([]string, len(o.Schemas))
		for i, s := range o.Schemas {
			views[i] = s.View
		}
		return nil, errors.New("parquet holds one kind of row: choose with --view " + strings.Join(views, " or "))
	}
	s := o.Schemas[0]
	columns := o.Columns[s]
	if columns == nil {
		columns = every(s)
	}
	p := &parquetSink{schema: s}
	root := fields{Group: parquet.Group{}}
	leaf := 0
	add := func(id string, cell int, node parquet.Node, leaves int, write func(parquet.Row, *row.Cell, int) parquet.Row) {
		root.add(id, parquet.Optional(node))
		p.fields = append(p.fields, parquetField{cell, leaf, write, leaves})
		leaf += leaves
	}
	for _, i := range columns {
		c := &s.Columns[i]
		switch {
		case c.Kind == row.Time:
			add(c.ID, i, parquet.Timestamp(parquet.Microsecond), 1, timeOf(1000))
			add(c.ID+"_ns", i, parquet.Int(64), 1, timeOf(1))
		case c.Kind == row.Uint || c.Kind == row.Int:
			if scale, ok := decimals(c.Div); ok && scale > 0 {
				add(c.ID, i, parquet.Decimal(scale, 18, parquet.Int64Type), 1, numberBelow(1e18))
			} else if ok {
				add(c.ID, i, parquet.Int(64), 1, numberBelow(math.MaxInt64))
			} else {
				add(c.ID, i, parquet.Leaf(parquet.DoubleType), 1, doubleOf(c))
			}
		case c.Kind == row.Bool:
			add(c.ID, i, parquet.Leaf(parquet.BooleanType), 1, boolOf)
		case c.IsHist(), c.Inner:
			add(c.ID, i, histNode(), histLeaves, histOf)
		case c.Kind == row.Object:
			add(c.ID, i, stackNode(), stackLeaves, stackOf)
		default:
			add(c.ID, i, parquet.Encoded(parquet.String(), &parquet.RLEDictionary), 1, textOf)
		}
	}
	options := []parquet.WriterOption{
		parquet.NewSchema(s.Tool, root), parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault, Concurrency: 1}),
		parquet.MaxRowsPerRowGroup(parquetGroup), parquet.CreatedBy("seine", "", ""),
		parquet.KeyValueMetadata("seine.tool", s.Tool), parquet.KeyValueMetadata("seine.view", s.View),
	}
	p.out = parquet.NewGenericWriter[any](w.to, options...)
	return p, nil
}

// fields is a group whose columns stay in the order in which they were added.
type fields struct {
	parquet.Group
	order *[]string
}

func (f *fields) add(id string, n parquet.Node) {
	if f.order == nil {
		f.order = &[]string{}
	}
	f.Group[id] = n
	*f.order = append(*f.order, id)
}

// Fields lists the columns in order.
func (f fields) Fields() []parquet.Field {
	all := f.Group.Fields()
	slices.SortFunc(all, func(a, b parquet.Field) int {
		return slices.Index(*f.order, a.Name()) - slices.Index(*f.order, b.Name())
	})
	return all
}

func group(names string, nodes ...parquet.Node) parquet.Node {
	f := fields{Group: parquet.Group{}}
	for i, name := range strings.Fields(names) {
		f.add(name, nodes[i])
	}
	return f
}

// decimals says how many digits behind the point a Div gives; false: it is not a power of ten.
func decimals(div uint64) (n int, ok bool) {
	for div > 1 && div%10 == 0 {
		div /= 10
		n++
	}
	return n, div <= 1
}

// present writes a value at definition level 1: its column is there.
func present(to parquet.Row, v parquet.Value, leaf int) parquet.Row {
	return append(to, v.Level(0, 1, leaf))
}

func null(to parquet.Row, leaf int) parquet.Row {
	return append(to, parquet.NullValue().Level(0, 0, leaf))
}

func timeOf(div int64) func(parquet.Row, *row.Cell, int) parquet.Row {
	return func(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
		if c.Kind != row.Time {
			return null(to, leaf)
		}
		n := int64(c.N) / div
		if int64(c.N)%div < 0 {
			n--
		}
		return present(to, parquet.Int64Value(n), leaf)
	}
}

// numberBelow writes whole numbers; what does not fit is absent rather than wrong.
func numberBelow(most uint64) func(parquet.Row, *row.Cell, int) parquet.Row {
	return func(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
		n := c.N
		if c.Kind == row.Int && int64(n) < 0 {
			n = -n
		}
		if c.Kind != row.Uint && c.Kind != row.Int || n > most {
			return null(to, leaf)
		}
		return present(to, parquet.Int64Value(int64(c.N)), leaf)
	}
}

func doubleOf(col *row.Column) func(parquet.Row, *row.Cell, int) parquet.Row {
	return func(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
		if c.Kind != row.Uint && c.Kind != row.Int {
			return null(to, leaf)
		}
		return present(to, parquet.DoubleValue(col.Value(c)), leaf)
	}
}

func boolOf(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
	if c.Kind != row.Bool {
		return null(to, leaf)
	}
	return present(to, parquet.BooleanValue(c.N != 0), leaf)
}

// textOf writes UTF-8: one name that is not would fail a whole query of DuckDB.
func textOf(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
	var b []byte
	switch c.Kind {
	case row.Text:
		b = appendValid(nil, c.S)
	case row.Addr:
		b = appendAddr(nil, c)
	case row.Uint:
		b = strconv.AppendUint(nil, c.N, 10)
	case row.Int:
		b = strconv.AppendInt(nil, int64(c.N), 10)
	default:
		return null(to, leaf)
	}
	return present(to, parquet.ByteArrayValue(b), leaf)
}

const histLeaves = 10

func histNode() parquet.Node {
	n, d := parquet.Int(64), parquet.Leaf(parquet.DoubleType)
	return group("count sum min max p50 p90 p99 buckets", n, n, n, n, d, d, d, parquet.List(group("lo hi count", n, n, n)))
}

func histOf(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
	h, ok := c.Ref.(*kern.Hist)
	if !ok {
		return nulls(to, leaf, histLeaves)
	}
	for _, n := range [...]uint64{h.Count, h.Sum, h.Min, h.Max} {
		to = present(to, parquet.Int64Value(int64(n)), leaf)
		leaf++
	}
	for _, q := range [...]float64{0.5, 0.9, 0.99} {
		to = present(to, parquet.DoubleValue(h.Quantile(q)), leaf)
		leaf++
	}
	buckets := h.Buckets()
	return listOf(to, leaf, 3, len(buckets), func(i, part int) parquet.Value {
		b := &buckets[i]
		return parquet.Int64Value(int64(min([...]uint64{b.Lo, b.Hi, b.Count}[part], math.MaxInt64)))
	})
}

const stackLeaves = 3

func stackNode() parquet.Node {
	text := parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	return parquet.List(group("sym off mod", text, parquet.Int(64), text))
}

func stackOf(to parquet.Row, c *row.Cell, leaf int) parquet.Row {
	st, ok := c.Ref.(*kern.Stack)
	if !ok {
		return nulls(to, leaf, stackLeaves)
	}
	return listOf(to, leaf, stackLeaves, len(st.Frames), func(i, part int) parquet.Value {
		switch f := &st.Frames[i]; part {
		case 0:
			return parquet.ByteArrayValue(appendValid(nil, f.Sym))
		case 1:
			return parquet.Int64Value(int64(f.Off))
		default:
			return parquet.ByteArrayValue(appendValid(nil, f.Module))
		}
	})
}

func nulls(to parquet.Row, leaf, n int) parquet.Row {
	for i := range n {
		to = null(to, leaf+i)
	}
	return to
}

// listOf writes the parts of a list's elements, leaf by leaf. Level 1 says that the list is there,
// level 2 that it has elements; those after the first repeat.
func listOf(to parquet.Row, leaf, parts, n int, at func(i, part int) parquet.Value) parquet.Row {
	for part := range parts {
		if n == 0 {
			to = append(to, parquet.NullValue().Level(0, 1, leaf+part))
		}
		for i := range n {
			to = append(to, at(i, part).Level(min(i, 1), 2, leaf+part))
		}
	}
	return to
}

// Row takes one row.
func (p *parquetSink) Row(r *row.Row) error {
	if r.Schema != p.schema {
		return nil
	}
	var to parquet.Row
	if len(p.rows) < cap(p.rows) {
		p.rows = p.rows[:len(p.rows)+1]
		to = p.rows[len(p.rows)-1][:0]
	} else {
		p.rows = append(p.rows, nil)
	}
	for i := range p.fields {
		f := &p.fields[i]
		if c := &r.Cells[f.cell]; c.Kind == row.Null {
			to = nulls(to, f.leaf, f.none)
		} else {
			to = f.write(to, c, f.leaf)
		}
	}
	p.rows[len(p.rows)-1] = to
	if len(p.rows) == parquetBatch {
		return p.flush()
	}
	return nil
}

func (p *parquetSink) flush() error {
	_, err := p.out.WriteRows(p.rows)
	p.rows = p.rows[:0]
	return err
}

// End writes the footer when nothing more comes.
func (p *parquetSink) End(e row.End) error {
	if !e.Last || p.closed {
		return nil
	}
	p.closed = true
	if err := p.flush(); err != nil {
		return err
	}
	return p.out.Close()
}
