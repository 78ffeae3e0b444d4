// SPDX-License-Identifier: Apache-2.0

package row

import (
	"encoding/binary"
	"slices"
)

// A Folder is an object of a cell that can be compared and added to.
type Folder interface {
	Same() string // equal for objects that are the same
	Fold(other any)
}

// Fold merges the rows of an output that agree in the columns called keys, once
// they have their names: numbers that can be added up are, histograms are
// merged. Columns that are neither are blank afterwards if they differ. Rows of a
// view that does not have these columns stay as they are.
func Fold(next Sink, keys []string) Sink { return &folding{next: next, keys: keys} }

type folding struct {
	next Sink
	keys []string
	rows map[string]*Row
	list []*Row
	key  []byte
}

func (f *folding) Row(r *Row) error {
	f.key = f.key[:0]
	for _, id := range f.keys {
		c := r.Get(id)
		if c == nil {
			f.list = append(f.list, r.Clone())
			return nil
		}
		f.key = appendKey(f.key, c)
	}
	if c := r.Get(PendingID); c != nil {
		f.key = appendKey(f.key, c)
	}
	if f.rows == nil {
		f.rows = map[string]*Row{}
	}
	old, ok := f.rows[string(f.key)]
	if !ok {
		n := r.Clone()
		f.rows[string(f.key)] = n
		f.list = append(f.list, n)
		return nil
	}
	for i := range old.Cells {
		f.merge(&old.Cells[i], &r.Cells[i], &old.Schema.Columns[i])
	}
	return nil
}

func (f *folding) merge(to, from *Cell, c *Column) {
	switch {
	case slices.Contains(f.keys, c.ID):
	case c.Sum && to.Kind == Uint && from.Kind == Uint:
		to.N += from.N
	case to.Kind == Object && from.Kind == Object:
		if o, ok := to.Ref.(Folder); ok {
			o.Fold(from.Ref)
		}
	case to.Kind != from.Kind || to.N != from.N || to.S != from.S:
		*to = Cell{}
	}
}

// appendKey writes a cell so that equal cells give equal bytes.
func appendKey(b []byte, c *Cell) []byte {
	b = append(b, byte(c.Kind))
	b = binary.LittleEndian.AppendUint64(b, c.N)
	s := c.S
	if o, ok := c.Ref.(Folder); ok {
		s = o.Same()
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func (f *folding) End(e End) error {
	if e.Output || e.Last {
		for _, r := range f.list {
			if err := f.next.Row(r); err != nil {
				return err
			}
		}
		f.list = f.list[:0]
		clear(f.rows)
	}
	return f.next.End(e)
}
