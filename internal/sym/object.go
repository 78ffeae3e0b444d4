// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
)

// An object is what is kept of an ELF file's headers: where its code goes.
type object struct {
	base uint64 // lowest address, as linked
	code []load
}

// A load is a part of a file that becomes executable memory.
type load struct{ off, size, addr uint64 }

// object reads the program headers.
func (f *elfFile) object() *object {
	o := &object{}
	first := true
	for _, p := range f.progs {
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		if first || p.Vaddr < o.base {
			o.base, first = p.Vaddr, false
		}
		if elf.ProgFlag(p.Flags)&elf.PF_X != 0 && p.Filesz > 0 {
			o.code = append(o.code, load{p.Off, p.Filesz, p.Vaddr})
		}
	}
	o.base &^= 0xfff
	return o
}

// vaddr turns an offset in the file into an address as linked. That is what
// symbols use, wherever the file is mapped.
func (o *object) vaddr(off uint64) (uint64, bool) {
	for _, l := range o.code {
		if off >= l.off && off-l.off < l.size {
			return off - l.off + l.addr, true
		}
	}
	return 0, false
}

// holds reports whether an address as linked is in executable memory.
func (o *object) holds(vaddr uint64) bool {
	for _, l := range o.code {
		if vaddr >= l.addr && vaddr-l.addr < l.size {
			return true
		}
	}
	return false
}

// buildID returns the bytes that identify the link, or nil.
func (f *elfFile) buildID() []byte {
	for i := range f.sections {
		s := &f.sections[i]
		if elf.SectionType(s.Type) != elf.SHT_NOTE {
			continue
		}
		note, err := f.data(s, maxSmall)
		if err != nil {
			continue
		}
		if id := gnuBuildID(note); id != nil {
			return id
		}
	}
	return nil
}

// gnuBuildID walks notes: name size, description size, type, name, description,
// each padded to 4 bytes.
func gnuBuildID(b []byte) []byte {
	const ntGNUBuildID = 3
	for len(b) >= 12 {
		nameSize, descSize, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		b = b[12:]
		name := (nameSize + 3) &^ 3
		desc := (descSize + 3) &^ 3
		if name+descSize > uint64(len(b)) {
			return nil
		}
		id := b[name : name+descSize]
		if typ == ntGNUBuildID && nameSize == 4 && string(b[:4]) == "GNU\x00" && descSize >= 2 && descSize <= 64 {
			return bytes.Clone(id)
		}
		b = b[min(name+desc, uint64(len(b))):]
	}
	return nil
}

// debugLink returns the name and the checksum of the file that holds the
// symbols that were stripped; "" when there is none.
func (f *elfFile) debugLink() (name string, crc uint32) {
	s := f.section(".gnu_debuglink")
	if s == nil {
		return "", 0
	}
	b, err := f.data(s, maxName)
	if err != nil {
		return "", 0
	}
	n := bytes.IndexByte(b, 0)
	if n <= 0 || (n+4)&^3+4 > len(b) || bytes.IndexByte(b[:n], '/') >= 0 {
		return "", 0
	}
	return string(b[:n]), le.Uint32(b[(n+4)&^3:])
}

// peek reads a file's headers, and opens what its symbols are to be read from:
// itself, or a separate file if it was stripped. What is not ELF gives nils.
func peek(p place, at found, name string) (*object, *os.File, error) {
	src, err := at.open()
	if err != nil {
		return nil, nil, err
	}
	f, err := openELF(src, at.stat.Size)
	if err != nil {
		src.Close()
		return nil, nil, nil
	}
	obj := f.object()
	if f.sectionOf(elf.SHT_SYMTAB) == nil {
		if d := findDebug(p, f, name); d != nil {
			src.Close()
			return obj, d, nil
		}
	}
	return obj, src, nil
}

// parseELF makes a table of all functions that an ELF file names. Go's own table
// is read only when the symbols were stripped: it lacks the functions in C. Damage
// is reported in err and does not spoil the rest; the table is never nil.
func parseELF(r io.ReaderAt, size int64) (*table, error) {
	f, err := openELF(r, size)
	if err != nil {
		return &table{}, err
	}
	var b builder
	full := f.sectionOf(elf.SHT_SYMTAB)
	if full != nil {
		err = f.symbols(&b, full)
	}
	if s := f.sectionOf(elf.SHT_DYNSYM); s != nil {
		err = errors.Join(err, f.symbols(&b, s))
	}
	if full == nil {
		err = errors.Join(err, f.goFuncs(&b))
	}
	b.sort()
	b.settle()
	b.single()
	return b.table(), err
}
