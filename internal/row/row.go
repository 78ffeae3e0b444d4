// SPDX-License-Identifier: Apache-2.0

// Package row turns typed values into rows of named columns, once for all
// output formats. A column has one id everywhere: in --columns, in --where, in
// JSON and in CSV.
package row

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Kind says how a cell is to be read.
type Kind uint8

// The kinds of cells.
const (
	Null   Kind = iota // absent: nothing is known
	Uint               // N
	Int                // int64(N)
	Bool               // N != 0
	Time               // N is nanoseconds since the Unix epoch
	Text               // S
	Addr               // S is 16 raw bytes, IPv4 as ::ffff:a.b.c.d
	Object             // Ref: *kern.Hist, *kern.Stack or JSON
)

// A Cell is one value of a row. S and Ref may alias memory that is reused: they
// are valid until the call that was handed the row returns.
type Cell struct {
	Kind Kind
	N    uint64
	S    string
	Ref  any
}

// SetUint makes c a number.
func (c *Cell) SetUint(n uint64) { *c = Cell{Kind: Uint, N: n} }

// SetInt makes c a number that may be negative.
func (c *Cell) SetInt(n int64) { *c = Cell{Kind: Int, N: uint64(n)} }

// SetText makes c a string.
func (c *Cell) SetText(s string) { *c = Cell{Kind: Text, S: s} }

// Clone returns a cell that stays valid when the row is reused. What Ref points
// at is shared: outputs hand out a fresh Hist and Stack per row.
func (c Cell) Clone() Cell {
	c.S = strings.Clone(c.S)
	return c
}

// IP returns the address of a cell of kind Addr, IPv4 unmapped.
func (c *Cell) IP() netip.Addr {
	if len(c.S) != 16 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte([]byte(c.S))).Unmap()
}

// JSON is an object that is a list or a record, as its JSON text: scripts have tuples,
// arrays, and buckets of any kind.
type JSON string

// A Valuer is a field type that knows which cell it is.
type Valuer interface{ Cell(*Cell) }

// PendingID is the column that is true in rows about something that has begun and not ended. In
// other rows it is absent.
const PendingID = "pending"

// Pending says whether r is about something that has not ended.
func (r *Row) Pending() bool {
	c := r.Get(PendingID)
	return c != nil && c.Kind == Bool && c.N != 0
}

// A Row is the values of one event or key, in the order of its schema's columns. It is reused: a
// sink that keeps it must keep a Clone.
type Row struct {
	Schema *Schema
	Cells  []Cell
	Bytes  []byte // data of the row that no column shows: a packet
}

// Clone returns a row that stays valid.
func (r *Row) Clone() *Row {
	n := &Row{Schema: r.Schema, Bytes: slices.Clone(r.Bytes), Cells: slices.Clone(r.Cells)}
	for i := range n.Cells {
		n.Cells[i].S = strings.Clone(n.Cells[i].S)
	}
	return n
}

// Get returns the cell of the column called id, nil if there is none.
func (r *Row) Get(id string) *Cell {
	if i := r.Schema.Index(id); i >= 0 {
		return &r.Cells[i]
	}
	return nil
}

// An End closes a batch of rows.
type End struct {
	Time   time.Time
	Output bool   // an output of an interval or counting tool is complete; else: a batch of events
	Last   bool   // nothing comes after this one
	Losses []Loss // since the last End that had some; for formats that show them
	Tool   string // whose losses they are
}

// RingFull is the kind of losses that did not fit the buffer between kernel and seine.
const RingFull = "ring_full"

// OwnerUnknown is the kind of losses that counts rows without a process. The rows are not lost.
const OwnerUnknown = "owner_unknown"

// A Loss is how many events did not make it into the output, and why.
type Loss struct {
	Kind string
	N    uint64
}

// A Sink takes rows. A stage is a sink that has a next sink.
type Sink interface {
	// Row takes one row, valid until it returns.
	Row(*Row) error
	// End is called when a batch of events has been handed over, and when an
	// output is complete. Whatever is buffered goes out.
	End(End) error
}

// A Namer turns a raw value into a name: a cgroup id into a path, an errno into a word. It is
// called only for columns in use, and may look at the whole row.
type Namer func(r *Row, c *Cell)

// Done is returned by a sink that wants no more rows, as after -n 10.
var Done = done{}

type done struct{}

func (done) Error() string { return "enough rows" }
