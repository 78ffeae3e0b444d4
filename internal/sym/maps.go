// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"
)

const (
	maxMapsBytes = 64 << 20 // of /proc/PID/maps; 65,530 mappings are the kernel's default limit
	maxMappings  = 16384    // executable ones of one process
	maxMapped    = 1024     // files of one process
)

// A mapping is an executable part of an address space.
type mapping struct {
	start, end uint64
	off        uint64 // in the file
	name       string // as maps shows it, without " (deleted)"; Anon if it has none
	dev        uint64 // major<<32 | minor, as maps shows them: not always those of stat
	ino        uint64 // 0 when there is no file
	deleted    bool
	file       *file // nil when there is none, or it cannot be read
}

// elf reports whether the mapping is of an ELF file that could be read.
func (m *mapping) elf() bool { return m.file != nil && m.file.obj != nil }

// jit reports whether a JIT compiler may write its code here: memory without a
// file, or with one that is nothing but memory.
func (m *mapping) jit() bool {
	switch {
	case m.elf(), m.name == VDSO, m.name == "[vsyscall]", m.name == "[uprobes]":
		return false
	}
	return m.ino == 0 || m.file != nil || m.deleted
}

// parseMaps reads the executable mappings of /proc/PID/maps, lines like
//
//	7f3c5e028000-7f3c5e1bd000 r-xp 00028000 fd:01 1835123   /usr/lib/libc.so.6
//
// in order of address. A newline in a path shows as \012, and is left so: a
// backslash is not escaped, so there is no telling what was meant.
func parseMaps(r io.Reader) ([]mapping, error) {
	var maps []mapping
	in := bufio.NewReaderSize(io.LimitReader(r, maxMapsBytes), 32<<10)
	for len(maps) < maxMappings {
		line, err := readLine(in)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if m, ok := parseMapping(line); ok {
			maps = append(maps, m)
		}
	}
	// The kernel prints them in order, but find relies on it.
	slices.SortFunc(maps, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	return maps, nil
}

func parseMapping(line []byte) (m mapping, ok bool) {
	if m.start, line, ok = cutHex(line, '-'); !ok {
		return m, false
	}
	if m.end, line, ok = cutHex(line, ' '); !ok || m.end <= m.start {
		return m, false
	}
	if len(line) < 5 || line[2] != 'x' || line[4] != ' ' {
		return m, false
	}
	if m.off, line, ok = cutHex(line[5:], ' '); !ok {
		return m, false
	}
	var major, minor uint64
	if major, line, ok = cutHex(line, ':'); !ok {
		return m, false
	}
	if minor, line, ok = cutHex(line, ' '); !ok {
		return m, false
	}
	m.dev = major<<32 | minor&0xffffffff
	ino, name, _ := bytes.Cut(line, []byte{' '})
	for _, c := range ino {
		if c < '0' || c > '9' {
			return m, false
		}
		m.ino = m.ino*10 + uint64(c-'0')
	}
	m.name = Anon
	if name = bytes.TrimLeft(name, " "); len(name) > 0 {
		m.name, m.deleted = strings.CutSuffix(string(name), " (deleted)")
	}
	return m, true
}

// findMapping returns the mapping that addr is in, or nil.
func findMapping(maps []mapping, addr uint64) *mapping {
	lo, hi := 0, len(maps)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); maps[mid].end <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(maps) && maps[lo].start <= addr {
		return &maps[lo]
	}
	return nil
}
