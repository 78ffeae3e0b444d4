// SPDX-License-Identifier: Apache-2.0

package journal

import "encoding/binary"

// A Decoder reads numbers and bytes from the beginning of B. It is Bad once something was missing.
type Decoder struct {
	B   []byte
	Bad bool
}

// Uint reads what binary.AppendUvarint wrote.
func (d *Decoder) Uint() uint64 {
	n, size := binary.Uvarint(d.B)
	d.skip(size)
	return n
}

// Int reads what binary.AppendVarint wrote.
func (d *Decoder) Int() int64 {
	n, size := binary.Varint(d.B)
	d.skip(size)
	return n
}

// skip goes on behind a number. One that is too long or not whole has no size.
func (d *Decoder) skip(size int) {
	if size <= 0 {
		d.Bad = true
		return
	}
	d.B = d.B[size:]
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if b := d.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Fixed reads a number of eight bytes.
func (d *Decoder) Fixed() uint64 {
	if b := d.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Bytes reads a length and that many bytes, which alias B.
func (d *Decoder) Bytes() []byte { return d.Take(d.Uint()) }

// Take reads n bytes, which alias B.
func (d *Decoder) Take(n uint64) []byte {
	if n > uint64(len(d.B)) {
		d.Bad = true
		return nil
	}
	b := d.B[:n:n]
	d.B = d.B[n:]
	return b
}
