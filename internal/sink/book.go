// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"seine/internal/row"
)

// bookSink writes the columns of a table separated by commas and nothing else,
// under the heads that the book gives them: what its scripts print for other
// programs to read. What is absent is empty.
type bookSink struct {
	*writer
	o     Options
	plans plans[[]int]
	head  *row.Schema
}

func newBook(w *writer, o Options) (row.Sink, error) {
	b := &bookSink{writer: w, o: o}
	b.plans.make = func(s *row.Schema) (*[]int, error) {
		columns := o.Columns[s]
		if columns == nil {
			columns = s.Show
		}
		return &columns, nil
	}
	return b, nil
}

func (b *bookSink) header(s *row.Schema) error {
	columns, err := b.plans.of(s)
	if err != nil || b.head == s {
		return err
	}
	b.head = s
	for n, i := range *columns {
		if n > 0 {
			b.buf = append(b.buf, ',')
		}
		b.buf = append(b.buf, s.Columns[i].Head...)
	}
	b.buf = append(b.buf, '\n')
	return nil
}

func (b *bookSink) Row(r *row.Row) error {
	if err := b.header(r.Schema); err != nil {
		return err
	}
	columns, err := b.plans.of(r.Schema)
	if err != nil {
		return err
	}
	if b.o.Book != nil {
		b.o.Book(r)
	}
	for n, i := range *columns {
		if n > 0 {
			b.buf = append(b.buf, ',')
		}
		col, c := &r.Schema.Columns[i], &r.Cells[i]
		if c.Kind != row.Null {
			b.buf = append(b.buf, col.Prefix...)
		}
		switch c.Kind {
		case row.Uint, row.Int:
			b.buf = appendScaled(b.buf, c, scale(col), col.Prec)
		case row.Text:
			b.buf = appendCSV(b.buf, c.S)
		case row.Addr:
			b.buf = appendAddr(b.buf, c)
		case row.Bool:
			b.buf = appendBool(b.buf, c)
		}
	}
	b.buf = append(b.buf, '\n')
	return b.room()
}

// End writes the head before the first row has come.
func (b *bookSink) End(row.End) error {
	if b.head == nil && len(b.o.Schemas) > 0 {
		if err := b.header(b.o.Schemas[0]); err != nil {
			return err
		}
	}
	return b.flush()
}
