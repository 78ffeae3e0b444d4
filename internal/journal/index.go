// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A Summary is what a segment, or a whole recording, holds of one stream.
type Summary struct {
	Stream   uint64
	Frames   uint64
	Rows     uint64
	Bytes    uint64
	Min, Max int64
}

func (s *Summary) add(o Summary) {
	s.Frames += o.Frames
	s.Rows += o.Rows
	s.Bytes += o.Bytes
	if o.Min != 0 && (s.Min == 0 || o.Min < s.Min) {
		s.Min = o.Min
	}
	s.Max = max(s.Max, o.Max)
}

// contents is what is known of a segment without reading its rows.
type contents struct {
	streams map[uint64]*Summary
	entries []entry
	oldest  uint64 // the least number of a frame; 0: there is none
	skipped int64  // bytes that are not part of a whole frame
}

// during says whether there may be frames that w wants.
func (c *contents) during(w *Want) bool {
	for id, s := range c.streams {
		if w.stream(id) && w.during(s.Min, s.Max) {
			return true
		}
	}
	return false
}

// every reads the entries of any segment; none, of no segment.
func every(*contents) bool { return true }
func none(*contents) bool  { return false }

func (c *contents) add(e entry) {
	c.entries = append(c.entries, e)
	if e.Kind.counted() {
		if c.oldest == 0 || e.Seq < c.oldest {
			c.oldest = e.Seq
		}
		if c.streams == nil {
			c.streams = map[uint64]*Summary{}
		}
		s := c.streams[e.Stream]
		if s == nil {
			s = &Summary{Stream: e.Stream}
			c.streams[e.Stream] = s
		}
		s.add(Summary{Frames: 1, Rows: e.Rows, Bytes: uint64(e.size), Min: e.Min, Max: e.Max})
	}
}

// An index ends in its own length and this, so that it is found from the end.
const (
	trailer      = 0x0a786e69 // "inx\n"
	trailerBytes = 8
)

// indexFrame writes the index of c: the summaries, then the entries, compressed.
func indexFrame(c *contents) []byte {
	var data []byte
	data = binary.AppendUvarint(data, uint64(c.skipped))
	data = binary.AppendUvarint(data, c.oldest)
	data = binary.AppendUvarint(data, uint64(len(c.streams)))
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		data = binary.LittleEndian.AppendUint64(data, id)
		for _, n := range []uint64{s.Frames, s.Rows, s.Bytes} {
			data = binary.AppendUvarint(data, n)
		}
		data = binary.AppendVarint(binary.AppendVarint(data, s.Min), s.Max-s.Min)
	}
	var ids []uint64
	number := map[uint64]uint64{}
	refer := func(id uint64) uint64 {
		n, ok := number[id]
		if !ok {
			n = uint64(len(ids))
			number[id], ids = n, append(ids, id)
		}
		return n
	}
	var raw []byte
	var last entry
	for i := range c.entries {
		e := &c.entries[i]
		raw = append(raw, byte(e.Kind))
		raw = binary.AppendUvarint(raw, refer(e.Stream))
		raw = binary.AppendUvarint(raw, refer(e.Schema))
		raw = binary.AppendUvarint(raw, e.Seq)
		raw = binary.AppendUvarint(raw, e.Prev)
		raw = binary.AppendVarint(raw, e.Min-last.Min)
		raw = binary.AppendVarint(raw, e.Max-e.Min)
		raw = binary.AppendUvarint(raw, e.Rows)
		raw = binary.AppendUvarint(raw, uint64(e.off-last.off-last.size))
		raw = binary.AppendUvarint(raw, uint64(e.size))
		last = *e
	}
	data = binary.AppendUvarint(data, uint64(len(ids)))
	for _, id := range ids {
		data = binary.LittleEndian.AppendUint64(data, id)
	}
	data = binary.AppendUvarint(data, uint64(len(c.entries)))
	data = binary.AppendUvarint(data, uint64(len(raw)))
	data = Compress(data, raw)
	data = append(data, make([]byte, trailerBytes)...)
	b := appendFrame(nil, &Frame{Kind: index, Data: data})
	// The trailer is part of the frame, so the checksum comes again.
	binary.LittleEndian.PutUint32(b[len(b)-8:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[len(b)-4:], trailer)
	binary.LittleEndian.PutUint32(b[8:], checksum(b[prefix:]))
	return b
}

var errNoIndex = errors.New("no index")

// readIndex reads the index at the end of a file. Entries are read if they are asked for.
func readIndex(in io.ReaderAt, size int64, entries func(*contents) bool) (*contents, error) {
	var tail [trailerBytes]byte
	if size < trailerBytes {
		return nil, errNoIndex
	}
	if _, err := in.ReadAt(tail[:], size-trailerBytes); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if binary.LittleEndian.Uint32(tail[4:]) != trailer || n > size || n > MaxFrame {
		return nil, errNoIndex
	}
	b := make([]byte, n)
	if _, err := in.ReadAt(b, size-n); err != nil {
		return nil, err
	}
	f, err := parse(b)
	if err != nil || f.Kind != index || int64(len(b)) != n {
		return nil, errNoIndex
	}
	return parseIndex(f.Data[:len(f.Data)-trailerBytes], size-n, entries)
}

// parseIndex reads an index that stands at end.
func parseIndex(data []byte, end int64, entries func(*contents) bool) (*contents, error) {
	d := Decoder{B: data}
	c := &contents{streams: map[uint64]*Summary{}, skipped: int64(d.Uint()), oldest: d.Uint()}
	for n := d.Uint(); n > 0 && !d.Bad; n-- {
		s := &Summary{Stream: d.Fixed()}
		s.Frames, s.Rows, s.Bytes, s.Min = d.Uint(), d.Uint(), d.Uint(), d.Int()
		s.Max = s.Min + d.Int()
		c.streams[s.Stream] = s
	}
	if d.Bad {
		return nil, errNoIndex
	}
	if !entries(c) {
		return c, nil
	}
	var ids []uint64
	for n := d.Uint(); n > 0 && !d.Bad; n-- {
		ids = append(ids, d.Fixed())
	}
	count, size := d.Uint(), d.Uint()
	if d.Bad || size > MaxFrame {
		return nil, errNoIndex
	}
	raw, err := Decompress(nil, d.B, int(size))
	const least = 10 // bytes of an entry
	if err != nil || count > uint64(len(raw)/least) {
		return nil, errNoIndex
	}
	d = Decoder{B: raw}
	id := func() uint64 {
		n := d.Uint()
		if n >= uint64(len(ids)) {
			d.Bad = true
			return 0
		}
		return ids[n]
	}
	c.entries = make([]entry, 0, count)
	var last entry
	for range count {
		var e entry
		e.Kind = Kind(d.Byte())
		e.Stream, e.Schema, e.Seq, e.Prev = id(), id(), d.Uint(), d.Uint()
		e.Min = last.Min + d.Int()
		e.Max, e.Rows = e.Min+d.Int(), d.Uint()
		e.off = last.off + last.size + int64(d.Uint())
		e.size = int64(d.Uint())
		if d.Bad || e.off < 0 || e.size < prefix || e.off+e.size > end {
			return nil, errNoIndex
		}
		c.entries = append(c.entries, e)
		last = e
	}
	return c, nil
}

// look finds out what a segment holds: by its index, or by scanning it where that is
// missing. Closed says that it had an index: nothing will be added to it.
func look(f io.ReaderAt, size int64, entries func(*contents) bool) (c *contents, closed bool, err error) {
	if c, err = readIndex(f, size, entries); err == nil {
		return c, true, nil
	}
	c = &contents{}
	s := newScanner(f, 0)
	for {
		_, e, err := s.next()
		if err == io.EOF {
			c.skipped = s.skipped + size - s.off
			return c, false, nil
		}
		if err != nil {
			return c, false, err
		}
		if e.Kind != index {
			c.add(e)
		}
	}
}

// lookFile is look at a file as long as it is now.
func lookFile(f *os.File, entries func(*contents) bool) (*contents, bool, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	return look(f, st.Size(), entries)
}

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(MaxFrame), zstd.WithDecoderLowmem(true))
)

// Compress appends the compressed form of raw to b.
func Compress(b, raw []byte) []byte { return encoder.EncodeAll(raw, b) }

// Decompress reads what Compress wrote of size bytes, into buf if that is large enough.
// Data that would become longer are an error, so it takes no more memory than size.
func Decompress(buf, data []byte, size int) ([]byte, error) {
	if size > MaxFrame {
		return nil, errDamaged
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	out, err := unpacker.DecodeAll(data, buf[:0:size])
	if err != nil {
		return nil, err
	}
	if len(out) != size {
		return nil, errDamaged
	}
	return out, nil
}
