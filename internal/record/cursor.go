// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"seine/internal/journal"
	"seine/internal/row"
)

// numbers reads what appendNumbers wrote, one at a time.
type numbers struct {
	mode byte
	b    []byte
	prev uint64
	bad  bool
}

func (n *numbers) open(d *journal.Decoder) {
	n.mode, n.prev, n.bad = d.Byte(), 0, false
	if n.mode == same {
		n.prev = d.Uint()
	}
	n.b, n.bad = d.B, d.Bad || n.mode > deltas
}

func (n *numbers) next() uint64 {
	if n.mode == same {
		return n.prev
	}
	var x uint64
	if len(n.b) > 0 && n.b[0] < 0x80 { // most are small
		x, n.b = uint64(n.b[0]), n.b[1:]
	} else {
		var size int
		if x, size = binary.Uvarint(n.b); size <= 0 {
			n.bad = true
			return 0
		}
		n.b = n.b[size:]
	}
	if n.mode == deltas {
		n.prev += x>>1 ^ -(x & 1)
		return n.prev
	}
	return x
}

// cursor reads the cells of one column of a block.
type cursor struct {
	to      int // cell of the row
	mul     uint64
	div     uint64 // if the unit of the column has changed since; 0: it has not
	kind    row.Kind
	kinds   []byte // nil: all are kind
	dict    []string
	objects []any // stacks that were read
	nums    numbers
}

func (c *cursor) open(b []byte, n int) error {
	d := journal.Decoder{B: b}
	head := d.Byte()
	c.kind, c.kinds = row.Kind(head&^uniform), nil
	some := c.kind != row.Null
	if head&uniform == 0 {
		if c.kinds = d.Take(uint64(n)); d.Bad {
			return errBad
		}
		some = true
	}
	c.dict, c.objects = c.dict[:0], c.objects[:0]
	if c.kind > row.Object || !some {
		if d.Bad || c.kind > row.Object {
			return errBad
		}
		return nil
	}
	count := d.Uint()
	if count > uint64(len(d.B)) {
		return errBad
	}
	for range count {
		s := d.Bytes()
		c.dict = append(c.dict, unsafe.String(unsafe.SliceData(s), len(s)))
	}
	c.nums.open(&d)
	if d.Bad || c.nums.bad {
		return errBad
	}
	return nil
}

// next reads the cell of the next row, the i-th.
func (c *cursor) next(i int, cell *row.Cell) error {
	kind := c.kind
	if c.kinds != nil {
		kind = row.Kind(c.kinds[i])
	}
	if kind == row.Null {
		*cell = row.Cell{}
		return nil
	}
	n := c.nums.next()
	if c.nums.bad {
		return errBad
	}
	switch kind {
	case row.Uint, row.Bool, row.Time:
		*cell = row.Cell{Kind: kind, N: n}
	case row.Int:
		*cell = row.Cell{Kind: kind, N: n>>1 ^ -(n & 1)}
	case row.Text, row.Addr:
		if n >= uint64(len(c.dict)) {
			return errBad
		}
		*cell = row.Cell{Kind: kind, S: c.dict[n]}
	case row.Object:
		ref, err := c.object(n)
		if err != nil {
			return err
		}
		*cell = row.Cell{Kind: kind, Ref: ref}
	default:
		return errBad
	}
	if c.div != 0 && (kind == row.Uint || kind == row.Int) {
		cell.N = rescale(cell.N, c.mul, c.div, kind == row.Int)
	}
	return nil
}

// object makes a histogram anew for each row, since stages add to it.
func (c *cursor) object(n uint64) (any, error) {
	if n >= uint64(len(c.dict)) {
		return nil, errBad
	}
	if len(c.dict[n]) > 0 && c.dict[n][0] == isHist {
		return parseObject(c.dict[n])
	}
	if len(c.objects) == 0 {
		c.objects = append(c.objects, make([]any, len(c.dict))...)
	}
	if c.objects[n] == nil {
		x, err := parseObject(c.dict[n])
		if err != nil {
			return nil, err
		}
		c.objects[n] = x
	}
	return c.objects[n], nil
}

// rescale is n·mul÷div, for a column whose unit is finer or coarser than it was.
func rescale(n, mul, div uint64, signed bool) uint64 {
	if signed && int64(n) < 0 {
		return -rescale(-n, mul, div, false)
	}
	hi, lo := bits.Mul64(n, mul)
	if hi >= div {
		return n
	}
	q, _ := bits.Div64(hi, lo, div)
	return q
}

// block is a block that is being read.
type block struct {
	row     *row.Row
	n, at   int
	raw     []byte
	ord     numbers
	ordinal uint64 // of the row that comes next
	time    int    // the column that says when; -1: none
	cursors []cursor
	columns []int // of the schema, in the order of cursors
}

// open begins to read raw, which must stay as it is.
func (b *block) open(raw []byte, columns int) error {
	d := journal.Decoder{B: raw}
	n := d.Uint()
	if n == 0 || n > MaxRows || d.Bad {
		return errBad
	}
	b.n, b.at = int(n), 0
	ords := journal.Decoder{B: d.Bytes()}
	b.ord.open(&ords)
	if d.Bad || b.ord.bad || d.Uint() != uint64(columns) {
		return errBad
	}
	next := 0
	for i := range columns {
		part := d.Bytes()
		if d.Bad {
			return errBad
		}
		if next < len(b.columns) && b.columns[next] == i {
			if err := b.cursors[next].open(part, b.n); err != nil {
				return err
			}
			next++
		}
	}
	b.ordinal = b.ord.next()
	return nil
}

// next fills the row. False: there is none.
func (b *block) next() (bool, error) {
	if b.at == b.n {
		return false, nil
	}
	for i := range b.cursors {
		c := &b.cursors[i]
		if err := c.next(b.at, &b.row.Cells[c.to]); err != nil {
			return false, err
		}
	}
	if b.at++; b.at < b.n {
		b.ordinal = b.ord.next()
	}
	if b.ord.bad {
		return false, errBad
	}
	return true, nil
}
