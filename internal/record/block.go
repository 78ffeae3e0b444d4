// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"seine/internal/journal"
	"seine/internal/kern"
	"seine/internal/row"
)

// A block is rows of one schema, column by column:
//
//	rows | ordinals | columns | for each column: length, kinds, dictionary, numbers
//
// Texts, addresses and objects are in the dictionary of their column; their number is the
// index in it. Numbers are coded as one value for all, plainly, or as differences, whichever is
// shortest.

// MaxRows is how many rows a block can have.
const MaxRows = 4096

// maxRaw is how many bytes a block can have before it is compressed; it ends at fullRaw.
const (
	maxRaw  = 16 << 20
	fullRaw = 1 << 20
)

var (
	errBad     = errors.New("the block is damaged: it has no valid rows")
	errNothing = errors.New("the recording has nothing in this range")
)

// How the numbers of a column are written.
const (
	same = iota
	plain
	deltas
)

const uniform = 0x80 // all kinds of a column are the same

// column gathers the cells of one column.
type column struct {
	kinds []byte
	nums  []uint64 // of cells that are not Null
	words map[string]uint64
	list  []string // of words, copied
	dict  []byte
	last  uint64 // the word before, which most often comes again
	count uint64 // of the dictionary's entries
}

func (k *column) put(c *row.Cell) error {
	k.kinds = append(k.kinds, byte(c.Kind))
	switch c.Kind {
	case row.Null:
	case row.Int:
		n := int64(c.N)
		k.nums = append(k.nums, uint64(n<<1)^uint64(n>>63))
	case row.Uint, row.Bool, row.Time:
		k.nums = append(k.nums, c.N)
	case row.Text, row.Addr:
		k.word(c.S)
	case row.Object:
		b, once, err := appendObject(nil, c.Ref)
		if err != nil {
			return err
		}
		if once && len(k.list) == 0 {
			k.nums = append(k.nums, k.add(b))
		} else {
			k.word(string(b))
		}
	default:
		return fmt.Errorf("a cell of kind %d cannot be recorded", c.Kind)
	}
	return nil
}

func (k *column) word(s string) {
	if len(k.list) == 0 || s != k.list[k.last] {
		n, ok := k.words[s]
		if !ok {
			if k.words == nil {
				k.words = map[string]uint64{}
			}
			n = k.add([]byte(s))
			s = strings.Clone(s)
			k.words[s], k.list = n, append(k.list, s)
		}
		k.last = n
	}
	k.nums = append(k.nums, k.last)
}

func (k *column) add(b []byte) uint64 {
	k.dict = append(binary.AppendUvarint(k.dict, uint64(len(b))), b...)
	k.count++
	return k.count - 1
}

func (k *column) reset() {
	k.kinds, k.nums, k.dict, k.last, k.count = k.kinds[:0], k.nums[:0], k.dict[:0], 0, 0
	clear(k.list)
	k.list = k.list[:0]
	clear(k.words)
}

// append writes the column behind b.
func (k *column) append(b []byte) []byte {
	one := true
	for _, x := range k.kinds {
		if x != k.kinds[0] {
			one = false
			break
		}
	}
	if one {
		b = append(b, uniform|k.kinds[0])
	} else {
		b = append(append(b, 0), k.kinds...)
	}
	if len(k.nums) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, k.count)
	b = append(b, k.dict...)
	return appendNumbers(b, k.nums)
}

func appendNumbers(b []byte, nums []uint64) []byte {
	var asPlain, asDeltas int
	equal := true
	prev := uint64(0)
	for _, n := range nums {
		equal = equal && n == nums[0]
		asPlain += bits.Len64(n|1) + 6
		d := int64(n - prev)
		asDeltas += bits.Len64((uint64(d<<1)^uint64(d>>63))|1) + 6
		prev = n
	}
	switch {
	case equal:
		return binary.AppendUvarint(append(b, same), nums[0])
	case asPlain <= asDeltas:
		b = append(b, plain)
		for _, n := range nums {
			b = binary.AppendUvarint(b, n)
		}
	default:
		b, prev = append(b, deltas), 0
		for _, n := range nums {
			b = binary.AppendVarint(b, int64(n-prev))
			prev = n
		}
	}
	return b
}

// Objects that a cell can refer to.
const (
	isHist = 1 + iota
	isStack
)

// appendObject writes a histogram or a stack. Once says that the same object hardly ever comes
// twice.
func appendObject(b []byte, ref any) (out []byte, once bool, err error) {
	switch x := ref.(type) {
	case *kern.Hist:
		b = append(b, isHist)
		for _, n := range [...]uint64{x.Count, x.Sum, x.Min, x.Max} {
			b = binary.AppendUvarint(b, n)
		}
		last := -1
		for i, n := range x.Slots {
			if n > 0 {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(i-last)), n)
				last = i
			}
		}
		return b, true, nil
	case *kern.Stack:
		broken := byte(0)
		if x.Broken {
			broken = 1
		}
		b = append(b, isStack, broken)
		for _, f := range x.Frames {
			b = appendText(appendText(b, f.Sym), f.Module)
			b = binary.AppendUvarint(b, f.Off)
		}
		return b, false, nil
	}
	return nil, false, fmt.Errorf("a %T cannot be recorded", ref)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func parseObject(s string) (any, error) {
	d := journal.Decoder{B: []byte(s)}
	switch d.Byte() {
	case isHist:
		h := &kern.Hist{Count: d.Uint(), Sum: d.Uint(), Min: d.Uint(), Max: d.Uint()}
		for at := uint64(0); len(d.B) > 0 && !d.Bad; {
			at += d.Uint()
			if at < 1 || at > kern.HistSlots {
				return nil, errBad
			}
			h.Slots[at-1] = d.Uint()
		}
		if !d.Bad {
			return h, nil
		}
	case isStack:
		st := &kern.Stack{Broken: d.Byte() != 0}
		for len(d.B) > 0 && !d.Bad {
			st.Frames = append(st.Frames, kern.Frame{Sym: string(d.Bytes()), Module: string(d.Bytes()), Off: d.Uint()})
		}
		if !d.Bad {
			return st, nil
		}
	}
	return nil, errBad
}
