// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"seine/internal/kern"
	"seine/internal/row"
)

// The messages of a process apart: a byte, the length of the body, the body.
const (
	msgAttached = iota // an attachment
	msgRow
	msgBatch // a row.End
	msgEnded // a conclusion
)

// A sender is the sink of the process apart.
type sender struct {
	out     *bufio.Writer
	schemas []*row.Schema
	body    []byte
}

// Row sends one row.
func (s *sender) Row(r *row.Row) (err error) {
	if s.body, err = appendRow(s.body[:0], r, s.schemas); err != nil {
		return err
	}
	return s.write(msgRow, s.body)
}

// End marks the end of an output.
func (s *sender) End(e row.End) error { return s.send(msgBatch, e) }

func (s *sender) send(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := s.write(kind, b); err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *sender) write(kind byte, body []byte) error {
	s.out.WriteByte(kind)
	s.out.Write(binary.AppendUvarint(nil, uint64(len(body))))
	_, err := s.out.Write(body)
	return err
}

func receive(in *bufio.Reader) (kind byte, body []byte, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(in, body)
	return kind, body, err
}

func appendRow(b []byte, r *row.Row, schemas []*row.Schema) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(slices.Index(schemas, r.Schema)))
	for i := range r.Cells {
		c := &r.Cells[i]
		b = append(b, byte(c.Kind))
		b = binary.AppendUvarint(b, c.N)
		b = appendText(b, c.S)
		switch v := c.Ref.(type) {
		case nil:
			b = append(b, refNone)
		case *kern.Hist:
			b = append(b, refHist)
			for _, n := range append([]uint64{v.Count, v.Sum, v.Min, v.Max}, v.Slots[:]...) {
				b = binary.AppendUvarint(b, n)
			}
		case *kern.Stack:
			b = append(b, refStack)
			broken := uint64(0)
			if v.Broken {
				broken = 1
			}
			b = binary.AppendUvarint(binary.AppendUvarint(b, broken), uint64(len(v.Frames)))
			for _, f := range v.Frames {
				b = binary.AppendUvarint(appendText(appendText(b, f.Sym), f.Module), f.Off)
			}
		default:
			return nil, fmt.Errorf("trial: column %s: a %T cannot be sent", r.Schema.Columns[i].ID, v)
		}
	}
	return append(binary.AppendUvarint(b, uint64(len(r.Bytes))), r.Bytes...), nil
}

// What a cell refers to.
const (
	refNone = iota
	refHist
	refStack
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A cursor reads what appendRow wrote. short is set once something is missing.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) number() uint64 {
	n, size := binary.Uvarint(c.b)
	c.short = c.short || size <= 0
	c.b = c.b[max(size, 0):]
	return n
}

func (c *cursor) text() string {
	n := c.number()
	if n > uint64(len(c.b)) {
		c.short = true
		return ""
	}
	s := string(c.b[:n])
	c.b = c.b[n:]
	return s
}

var errShortRow = errors.New("trial: a row was cut short")

func decodeRow(b []byte, schemas []*row.Schema) (*row.Row, error) {
	in := &cursor{b: b}
	view := in.number()
	if view >= uint64(len(schemas)) {
		return nil, fmt.Errorf("trial: a row of view %d, and there are %d", view, len(schemas))
	}
	r := schemas[view].New()
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Kind, c.N, c.S = row.Kind(in.number()), in.number(), in.text()
		switch in.number() {
		case refHist:
			h := &kern.Hist{Count: in.number(), Sum: in.number(), Min: in.number(), Max: in.number()}
			for i := range h.Slots {
				h.Slots[i] = in.number()
			}
			c.Ref = h
		case refStack:
			st := &kern.Stack{Broken: in.number() != 0}
			for n := in.number(); n > 0 && !in.short; n-- {
				st.Frames = append(st.Frames, kern.Frame{Sym: in.text(), Module: in.text(), Off: in.number()})
			}
			c.Ref = st
		}
	}
	r.Bytes = []byte(in.text())
	if in.short {
		return nil, errShortRow
	}
	if len(in.b) > 0 {
		return nil, fmt.Errorf("trial: %d bytes too many in a row", len(in.b))
	}
	return r, nil
}
