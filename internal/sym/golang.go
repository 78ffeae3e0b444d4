// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// Each Go binary has a table of its functions for its own stack traces,
// .gopclntab, also when it is stripped. debug/gosym reads it too, but makes an
// object of 200 bytes of each function, and wants to be told where the text
// starts.

// The layouts of .gopclntab, by the Go release that brought them.
const (
	pcln12  = 0xfffffffb
	pcln116 = 0xfffffffa
	pcln118 = 0xfffffff0
	pcln120 = 0xfffffff1
)

// textInModuledata is where runtime.moduledata (since 1.16) has the start of the
// text, in pointers: pcHeader, six slices, findfunctab, minpc, maxpc.
const textInModuledata = 1 + 6*3 + 3

// goFuncs adds the functions of a Go binary; for others it does nothing.
func (f *elfFile) goFuncs(b *builder) error {
	data, addr, err := f.pcln()
	if data == nil || err != nil {
		return err
	}
	t, err := openPcln(data)
	if err != nil {
		return fmt.Errorf("functions of Go: %w", err)
	}
	if t.relative {
		t.text = f.goText(addr, t.ptr)
	}
	t.funcs(b)
	return nil
}

// pcln returns the table and its address; nil if there is none.
func (f *elfFile) pcln() (data []byte, addr uint64, err error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.section(name); s != nil {
			data, err = f.data(s, maxPart)
			return data, s.Addr, err
		}
	}
	// In a PIE with C code, until 1.25, the linker made it a part of .data.rel.ro.
	s := f.section(".data.rel.ro")
	if s == nil || f.section(".go.buildinfo") == nil {
		return nil, 0, nil
	}
	if data, err = f.data(s, maxPart); err != nil {
		return nil, 0, err
	}
	for _, magic := range []uint32{pcln120, pcln118, pcln116, pcln12} {
		head := le.AppendUint32(nil, magic)
		head = append(head, 0, 0)
		for at := 0; at < len(data); at += 8 {
			i := bytes.Index(data[at:], head)
			if i < 0 {
				break
			}
			at += i
			if at%8 != 0 {
				at &^= 7
				continue
			}
			if t, err := openPcln(data[at:]); err == nil && t.n > 0 {
				return data[at:], s.Addr + uint64(at), nil
			}
		}
	}
	return nil, 0, nil
}

// goText returns the address of runtime.text, to which entries are relative. It
// is the start of .text only if no C code was linked in.
func (f *elfFile) goText(pcln, ptr uint64) uint64 {
	o := f.object()
	// Until 1.25 it is in the table itself, from 1.26 on only in the moduledata.
	places := []uint64{pcln + 8 + 2*ptr}
	if s := f.section(".go.module"); s != nil {
		places = append(places, s.Addr+textInModuledata*ptr)
	}
	for _, at := range places {
		if text, ok := f.pointer(at, ptr); ok && o.holds(text) {
			return text
		}
	}
	if s := f.section(".text"); s != nil {
		return s.Addr
	}
	return 0
}

// pointer returns the pointer at an address. In a PIE it may be there only after
// the dynamic linker has run, and until then in a relocation.
func (f *elfFile) pointer(at, ptr uint64) (uint64, bool) {
	for _, p := range f.progs {
		if elf.ProgType(p.Type) != elf.PT_LOAD || at < p.Vaddr || at-p.Vaddr >= p.Filesz {
			continue
		}
		b, err := f.read(p.Off+at-p.Vaddr, ptr, 8)
		if err != nil {
			return 0, false
		}
		if v := word(b, ptr); v != 0 {
			return v, true
		}
		return f.relocation(at)
	}
	return 0, false
}

// relocation returns the addend of the relative relocation at an address, as 64-bit
// machines have them.
func (f *elfFile) relocation(at uint64) (uint64, bool) {
	relative := uint32(elf.R_X86_64_RELATIVE)
	if f.machine == elf.EM_AARCH64 {
		relative = uint32(elf.R_AARCH64_RELATIVE)
	}
	for i := range f.sections {
		s := &f.sections[i]
		if elf.SectionType(s.Type) != elf.SHT_RELA || !f.is64 || s.Off > f.size || s.Size > min(f.size-s.Off, maxPart) {
			continue
		}
		in := bufio.NewReaderSize(io.NewSectionReader(f.r, int64(s.Off), int64(s.Size)), 64<<10)
		for range s.Size / 24 {
			r, err := in.Peek(24)
			if err != nil {
				break
			}
			if le.Uint64(r) == at && le.Uint32(r[8:]) == relative {
				return le.Uint64(r[16:]), true
			}
			in.Discard(24)
		}
	}
	return 0, false
}

// A pcln is a .gopclntab, of any release since 1.2.
type pcln struct {
	ptr      uint64 // bytes of a pointer
	field    uint64 // bytes of a field of functab
	relative bool   // entries count from text
	text     uint64
	n        uint64 // functions
	names    []byte
	functab  []byte // n times entry, offset in data; then the end of the last one
	data     []byte // where the records are that functab points to
}

var errPcln = errors.New("damaged table")

// openPcln reads the header: magic, two zeroes, instruction size, pointer size,
// number of functions, and then what differs from release to release.
func openPcln(b []byte) (*pcln, error) {
	if len(b) < 16 || b[4] != 0 || b[5] != 0 || b[7] != 4 && b[7] != 8 {
		return nil, errPcln
	}
	t := &pcln{ptr: uint64(b[7])}
	if uint64(len(b)) < 8+8*t.ptr {
		return nil, errPcln
	}
	t.n = word(b[8:], t.ptr)
	t.field = t.ptr
	// part returns the part of the table that header word i points to.
	part := func(i uint64) []byte {
		if off := word(b[8+i*t.ptr:], t.ptr); off < uint64(len(b)) {
			return b[off:]
		}
		return nil
	}
	switch le.Uint32(b) {
	case pcln12:
		t.names, t.data, t.functab = b, b, b[8+t.ptr:]
	case pcln116:
		t.names, t.data = part(2), part(6)
		t.functab = t.data
	case pcln118, pcln120:
		t.names, t.data = part(3), part(7)
		t.functab = t.data
		t.field = 4
		t.relative = true
	default:
		return nil, fmt.Errorf("unknown layout %#x", le.Uint32(b))
	}
	if t.n > maxFuncs || (2*t.n+1)*t.field > uint64(len(t.functab)) {
		return nil, errPcln
	}
	return t, nil
}

// funcs adds all functions. Each one ends where the next begins.
func (t *pcln) funcs(b *builder) {
	for i := range t.n {
		row := t.functab[2*i*t.field:]
		entry, at, end := word(row, t.field), word(row[t.field:], t.field), word(row[2*t.field:], t.field)
		// The record: the entry again, then where the name is.
		at += t.field
		if end <= entry || at > uint64(len(t.data)) || uint64(len(t.data))-at < 4 {
			continue
		}
		name := cString(t.names, le.Uint32(t.data[at:]), maxName)
		if len(name) == 0 {
			continue
		}
		if !b.add(function{addr: t.text + entry, rank: 1}, end-entry, name) {
			return
		}
	}
}

// word reads an unsigned number of 4 or 8 bytes.
func word(b []byte, size uint64) uint64 {
	if size == 4 {
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}
