// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
)

// readLine returns the next line without its end. The rest of a line that is
// longer than the reader's buffer is left out. The line is valid until the next
// call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line = bytes.Clone(line)
		for err == bufio.ErrBufferFull {
			_, err = r.ReadSlice('\n')
		}
	}
	if len(line) == 0 && err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte{'\n'}), nil
}

// cutHex reads a hexadecimal number, with or without 0x, and the byte sep after
// it, and returns what follows.
func cutHex(b []byte, sep byte) (n uint64, rest []byte, ok bool) {
	if len(b) > 2 && b[0] == '0' && b[1]|0x20 == 'x' {
		b = b[2:]
	}
	for i, c := range b {
		switch {
		case c == sep:
			return n, b[i+1:], i > 0
		case i == 16:
			return 0, nil, false
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, nil, false
		}
	}
	return 0, nil, false
}
