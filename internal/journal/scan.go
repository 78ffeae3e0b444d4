// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// An entry says where a frame is.
type entry struct {
	Frame // without data
	off   int64
	size  int64
}

// A scanner finds the frames of a file one after the other. Bytes that are not a whole
// frame with the right checksum are skipped: it goes on at the next magic.
type scanner struct {
	in      io.ReaderAt
	off     int64 // of the frame that comes next
	skipped int64 // bytes
	buf     []byte
	at      int64 // where in the file buf begins
	mark    []byte
}

func newScanner(in io.ReaderAt, off int64) *scanner {
	return &scanner{in: in, off: off, mark: binary.LittleEndian.AppendUint32(nil, magic)}
}

// window is how much is read at once.
const window = 256 << 10

// have returns the bytes from off on: n of them, or fewer where the file ends.
func (s *scanner) have(off int64, n int) ([]byte, error) {
	if skip := off - s.at; skip >= 0 && skip <= int64(len(s.buf)) && len(s.buf)-int(skip) >= n {
		return s.buf[skip:], nil
	}
	if cap(s.buf) < max(n, window) {
		s.buf = make([]byte, max(n, window))
	}
	s.buf = s.buf[:cap(s.buf)]
	got, err := s.in.ReadAt(s.buf, off)
	s.at, s.buf = off, s.buf[:got]
	if err != nil && !errors.Is(err, io.EOF) {
		return s.buf, err
	}
	return s.buf, nil
}

// next returns the next whole frame, valid until the next call, and where it was. At
// the end it is io.EOF; s.off is then where a frame that is not whole yet may begin.
func (s *scanner) next() (Frame, entry, error) {
	from := s.off
	for off := from; ; {
		b, err := s.have(off, prefix)
		if err != nil {
			return Frame{}, entry{}, err
		}
		n, err := lengthAt(b)
		if err == nil {
			if b, err = s.whole(off, n, b); err != nil {
				return Frame{}, entry{}, err
			}
			f, err := parse(b)
			if err == nil {
				s.skipped += off - from
				s.off = off + n
				e := entry{Frame: f, off: off, size: n}
				e.Data = nil
				return f, e, nil
			}
		}
		if len(b) < prefix {
			return Frame{}, entry{}, s.end(from)
		}
		if off, err = s.find(off + 1); err != nil {
			if err == io.EOF {
				err = s.end(from)
			}
			return Frame{}, entry{}, err
		}
	}
}

// whole has the whole frame in the buffer, if the file does. A length that is damage
// asks for no more memory than the file has bytes.
func (s *scanner) whole(off, n int64, b []byte) ([]byte, error) {
	if int64(len(b)) >= n {
		return b, nil
	}
	var last [1]byte
	if k, _ := s.in.ReadAt(last[:], off+n-1); k == 0 {
		return b, nil
	}
	return s.have(off, int(n))
}

// find looks for the next magic.
func (s *scanner) find(off int64) (int64, error) {
	for {
		b, err := s.have(off, len(s.mark))
		if err != nil {
			return 0, err
		}
		if i := bytes.Index(b, s.mark); i >= 0 {
			return off + int64(i), nil
		}
		if len(b) < len(s.mark) {
			return 0, io.EOF
		}
		off += int64(len(b) - len(s.mark) + 1)
	}
}

// end does not move off: the bytes that follow may become a frame.
func (s *scanner) end(from int64) error {
	s.off = from
	return io.EOF
}
