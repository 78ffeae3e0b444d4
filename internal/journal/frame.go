// SPDX-License-Identifier: Apache-2.0

// Package journal keeps frames of bytes in a directory of segments, within a budget.
// A reader finds every whole frame again, whatever happened to the bytes around it. What
// the frames hold is internal/record's business.
//
// A segment is a file <sequence>-<time>.seine of frames. A frame is
//
//	u32 magic | u32 length | u32 crc32c of the body, xor length | body
//
// and its body is a kind, a version, a head of numbers, and data. Numbers are little-endian.
package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Kind says what a frame holds.
type Kind uint8

// The kinds of frames.
const (
	Schema Kind = 1 + iota // what rows of one kind look like
	Rows                   // a block of rows
	Marks                  // starts, ends of outputs, losses
	Names                  // names that rows do not have themselves
	index                  // of a segment, at its end
)

// A Frame is what is written and read whole.
type Frame struct {
	Kind   Kind
	Stream uint64 // which stream of rows it is of, 0: of none
	Schema uint64 // the id of the schema of its rows, or its own
	Seq    uint64 // its number among all frames of rows and marks of a directory; 0: it has none
	Prev   uint64 // the number of the one before it in its stream; 0: the first of a run
	Min    int64  // the time of its rows, in nanoseconds since the Unix epoch; 0: it has none
	Max    int64
	Rows   uint64
	Data   []byte
}

// counted says whether a frame is one of those that have a number.
func (k Kind) counted() bool { return k == Rows || k == Marks }

const (
	magic   = 0x0a6e6573 // "sen\n"
	prefix  = 12         // magic, length, checksum
	version = 1
	// MaxFrame is how long a frame can be. A longer one is damage.
	MaxFrame = 32 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame writes f behind b.
func appendFrame(b []byte, f *Frame) []byte {
	start := len(b)
	b = append(b, make([]byte, prefix)...)
	b = append(b, byte(f.Kind), version)
	b = binary.LittleEndian.AppendUint64(b, f.Stream)
	b = binary.LittleEndian.AppendUint64(b, f.Schema)
	b = binary.AppendUvarint(b, f.Seq)
	b = binary.AppendUvarint(b, f.Prev)
	b = binary.AppendVarint(b, f.Min)
	b = binary.AppendVarint(b, f.Max-f.Min)
	b = binary.AppendUvarint(b, f.Rows)
	b = append(b, f.Data...)
	body := b[start+prefix:]
	binary.LittleEndian.PutUint32(b[start:], magic)
	binary.LittleEndian.PutUint32(b[start+4:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[start+8:], checksum(body))
	return b
}

// checksum of a body that is all zeros is not 0, since its length is in it.
func checksum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) ^ uint32(len(body)) }

var (
	errDamaged = errors.New("the frame is damaged")
	errShort   = errors.New("the frame is not whole")
)

// lengthAt reads how long the frame at the beginning of b is, all in all.
func lengthAt(b []byte) (int64, error) {
	if len(b) < prefix {
		return 0, errShort
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if binary.LittleEndian.Uint32(b) != magic || n > MaxFrame {
		return 0, errDamaged
	}
	return prefix + int64(n), nil
}

// parse reads the frame that b is. Its data aliases b.
func parse(b []byte) (f Frame, err error) {
	n, err := lengthAt(b)
	if err != nil {
		return f, err
	}
	if n > int64(len(b)) {
		return f, errShort
	}
	body := b[prefix:n]
	if checksum(body) != binary.LittleEndian.Uint32(b[8:]) || len(body) < 18 || body[1] != version {
		return f, errDamaged
	}
	f.Kind = Kind(body[0])
	f.Stream = binary.LittleEndian.Uint64(body[2:])
	f.Schema = binary.LittleEndian.Uint64(body[10:])
	d := Decoder{B: body[18:]}
	f.Seq, f.Prev, f.Min = d.Uint(), d.Uint(), d.Int()
	f.Max, f.Rows = f.Min+d.Int(), d.Uint()
	if d.Bad {
		return f, errDamaged
	}
	f.Data = d.B
	return f, nil
}
