// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// A program is one program that a process runs. The start time tells a PID that
// is used again; the places of code and stack, which change with each exec, tell
// a program that replaced another. Those need the right to ptrace the process,
// and are constant without it.
type program struct {
	start            uint64 // clock ticks since boot
	code, end, stack uint64
}

// is reports whether q, read later, is still the same program. One that is
// exiting has lost its places already.
func (p program) is(q program) bool {
	return p == q || q == program{start: p.start}
}

// readProgram reads /proc/PID/stat.
func readProgram(dir string) (program, error) {
	b, err := readProc(dir+"/stat", make([]byte, 1024))
	if err != nil {
		return program{}, err
	}
	p, ok := parseStat(b)
	if !ok {
		return program{}, unix.EINVAL
	}
	return p, nil
}

// parseStat reads the fields 22 and 26 to 28 of a stat line. Field 2, the name in
// parentheses, may hold anything.
func parseStat(b []byte) (p program, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return p, false
	}
	n := 2
	for field := range bytes.FieldsSeq(b[i+1:]) {
		n++
		var to *uint64
		switch n {
		case 22:
			to = &p.start
		case 26:
			to = &p.code
		case 27:
			to = &p.end
		case 28:
			to = &p.stack
		default:
			continue
		}
		v, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return p, false
		}
		*to = v
	}
	return p, n >= 28
}

// readProc reads a file of /proc into buf, as much as fits.
func readProc(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}
