// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// arm64Image checks that an image follows the kernel's boot protocol for arm64
// (Documentation/arch/arm64/booting.rst). Debian does not compress it.
func arm64Image(image []byte) ([]byte, error) {
	if len(image) < 64 || string(image[56:60]) != "ARM\x64" {
		return nil, errors.New("vmlinuz: not an arm64 image")
	}
	return image, nil
}

// btfHead begins the BTF of a little-endian kernel: magic, version 1, no flags,
// the size of the header, and types that follow it at once.
var btfHead = []byte{0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0}

// btfIn finds the BTF in the memory image of a kernel. Code that reads BTF also
// has the first bytes as constants, but without valid lengths.
func btfIn(image []byte) ([]byte, error) {
	le := binary.LittleEndian
	for rest := image; ; {
		at := bytes.Index(rest, btfHead)
		if at < 0 {
			return nil, errors.New("no BTF")
		}
		rest = rest[at:]
		if len(rest) < 24 {
			return nil, errors.New("no BTF")
		}
		// type_len, str_off and str_len: strings follow the types, the first is empty.
		types, from, strings := uint64(le.Uint32(rest[12:])), uint64(le.Uint32(rest[16:])), uint64(le.Uint32(rest[20:]))
		if end := 24 + from + strings; types > 0 && from == types && strings > 0 && end <= uint64(len(rest)) && rest[24+from] == 0 && rest[end-1] == 0 {
			return rest[:end], nil
		}
		rest = rest[1:]
	}
}
