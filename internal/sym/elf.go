// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds on one ELF file. debug/elf has none: a small file whose 65,000
// sections share one long name makes elf.NewFile allocate gigabytes, so only its
// types are used here.
const (
	maxProgs    = 256
	maxSections = 4096
	maxPart     = 256 << 20 // bytes of one section
	maxSmall    = 1 << 20   // bytes of the section names, of a note
)

var le = binary.LittleEndian

var errNotELF = errors.New("not an ELF file of this kind of machine")

// An elfFile is the outline of an ELF file. It is good as long as r is.
type elfFile struct {
	r        io.ReaderAt
	size     uint64 // of the file
	is64     bool
	machine  elf.Machine
	progs    []elf.Prog64
	sections []elf.Section64
	names    []byte // of sections
}

// openELF reads the headers of little-endian ELF files, 32 and 64 bits. A file
// without section headers is not an error.
func openELF(r io.ReaderAt, size int64) (*elfFile, error) {
	f := &elfFile{r: r, size: uint64(max(size, 0))}
	ident := make([]byte, 64)
	n, _ := r.ReadAt(ident, 0)
	if ident = ident[:n]; n < 52 || string(ident[:4]) != elf.ELFMAG || elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errNotELF
	}
	var h elf.Header64
	switch elf.Class(ident[elf.EI_CLASS]) {
	case elf.ELFCLASS64:
		f.is64 = true
		if _, err := binary.Decode(ident, le, &h); err != nil {
			return nil, errNotELF
		}
	case elf.ELFCLASS32:
		var s elf.Header32
		if _, err := binary.Decode(ident, le, &s); err != nil {
			return nil, errNotELF
		}
		h = elf.Header64{
			Machine: s.Machine, Phoff: uint64(s.Phoff), Shoff: uint64(s.Shoff),
			Phentsize: s.Phentsize, Phnum: s.Phnum,
			Shentsize: s.Shentsize, Shnum: s.Shnum, Shstrndx: s.Shstrndx,
		}
	default:
		return nil, errNotELF
	}
	f.machine = elf.Machine(h.Machine)
	if err := f.readProgs(h); err != nil {
		return nil, err
	}
	if h.Shoff == 0 || h.Shnum == 0 {
		return f, nil
	}
	return f, f.readSections(h)
}

func (f *elfFile) readProgs(h elf.Header64) error {
	n := min(int(h.Phnum), maxProgs)
	one := 56
	if !f.is64 {
		one = 32
	}
	if n == 0 {
		return nil
	}
	if int(h.Phentsize) != one {
		return fmt.Errorf("program headers of %d bytes", h.Phentsize)
	}
	b, err := f.read(h.Phoff, uint64(n*one), maxSmall)
	if err != nil {
		return fmt.Errorf("program headers: %w", err)
	}
	f.progs = make([]elf.Prog64, n)
	for i := range f.progs {
		if f.is64 {
			_, err = binary.Decode(b[i*one:], le, &f.progs[i])
		} else {
			var p elf.Prog32
			_, err = binary.Decode(b[i*one:], le, &p)
			f.progs[i] = elf.Prog64{Type: p.Type, Flags: p.Flags, Off: uint64(p.Off), Vaddr: uint64(p.Vaddr),
				Filesz: uint64(p.Filesz), Memsz: uint64(p.Memsz)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *elfFile) readSections(h elf.Header64) error {
	n := min(int(h.Shnum), maxSections)
	one := 64
	if !f.is64 {
		one = 40
	}
	if int(h.Shentsize) != one {
		return fmt.Errorf("section headers of %d bytes", h.Shentsize)
	}
	b, err := f.read(h.Shoff, uint64(n*one), maxSmall)
	if err != nil {
		return fmt.Errorf("section headers: %w", err)
	}
	f.sections = make([]elf.Section64, n)
	for i := range f.sections {
		if f.is64 {
			_, err = binary.Decode(b[i*one:], le, &f.sections[i])
		} else {
			var s elf.Section32
			_, err = binary.Decode(b[i*one:], le, &s)
			f.sections[i] = elf.Section64{Name: s.Name, Type: s.Type, Flags: uint64(s.Flags), Addr: uint64(s.Addr),
				Off: uint64(s.Off), Size: uint64(s.Size), Link: s.Link, Entsize: uint64(s.Entsize)}
		}
		if err != nil {
			return err
		}
	}
	if int(h.Shstrndx) < n {
		f.names, _ = f.data(&f.sections[h.Shstrndx], maxSmall)
	}
	return nil
}

// read returns size bytes at off, which must lie in the file.
func (f *elfFile) read(off, size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes are more than %d", size, limit)
	}
	if off > f.size || size > f.size-off {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, size)
	n, err := f.r.ReadAt(b, int64(off))
	if n == len(b) {
		return b, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// data returns what a section holds.
func (f *elfFile) data(s *elf.Section64, limit uint64) ([]byte, error) {
	if elf.SectionType(s.Type) == elf.SHT_NOBITS || elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil, errors.New("section without plain data")
	}
	return f.read(s.Off, s.Size, limit)
}

// section returns the section of that name, or nil.
func (f *elfFile) section(name string) *elf.Section64 {
	for i := range f.sections {
		if string(cString(f.names, f.sections[i].Name, len(name)+1)) == name {
			return &f.sections[i]
		}
	}
	return nil
}

// sectionOf returns the first section of that type that is not empty, or nil.
func (f *elfFile) sectionOf(typ elf.SectionType) *elf.Section64 {
	for i := range f.sections {
		if s := &f.sections[i]; elf.SectionType(s.Type) == typ && s.Size > 0 {
			return s
		}
	}
	return nil
}

// symbols adds the functions of a symbol table.
func (f *elfFile) symbols(b *builder, s *elf.Section64) error {
	if int(s.Link) >= len(f.sections) {
		return errors.New("symbols without names")
	}
	names, err := f.data(&f.sections[s.Link], maxPart)
	if err != nil {
		return fmt.Errorf("symbol names: %w", err)
	}
	one := 24
	if !f.is64 {
		one = 16
	}
	if s.Off > f.size || s.Size > min(f.size-s.Off, maxPart) || elf.SectionType(s.Type) == elf.SHT_NOBITS {
		return fmt.Errorf("symbol table of %d bytes", s.Size)
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f.r, int64(s.Off), int64(s.Size)), 64<<10)
	for range s.Size / uint64(one) {
		raw, err := in.Peek(one)
		if err != nil {
			return fmt.Errorf("symbol table: %w", err)
		}
		var sym elf.Sym64
		sym.Name = le.Uint32(raw)
		if f.is64 {
			sym.Info, sym.Shndx, sym.Value, sym.Size = raw[4], le.Uint16(raw[6:]), le.Uint64(raw[8:]), le.Uint64(raw[16:])
		} else {
			sym.Value, sym.Size, sym.Info, sym.Shndx = uint64(le.Uint32(raw[4:])), uint64(le.Uint32(raw[8:])), raw[12], le.Uint16(raw[14:])
		}
		in.Discard(one) // peeked: cannot fail
		if !f.symbol(b, sym, names) {
			break
		}
	}
	return nil
}

// symbol adds one symbol if it is a function, and reports whether there is room
// for more.
func (f *elfFile) symbol(b *builder, s elf.Sym64, names []byte) bool {
	typ, bind := elf.ST_TYPE(s.Info), elf.ST_BIND(s.Info)
	if typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC || s.Shndx == uint16(elf.SHN_UNDEF) || int(s.Shndx) >= len(f.sections) {
		return true
	}
	name := trimName(cString(names, s.Name, maxName))
	if len(name) == 0 {
		return true
	}
	fn := function{addr: s.Value, rank: rank(name, bind)}
	if f.machine == elf.EM_ARM {
		fn.addr &^= 1 // says that the code is Thumb
	}
	if s.Size == 0 {
		// Assembly without .size: ends at the next function, or with its section.
		in := &f.sections[s.Shndx]
		if fn.addr < in.Addr || fn.addr-in.Addr >= in.Size {
			return true
		}
		s.Size = in.Size - (fn.addr - in.Addr)
		fn.soft = true
		fn.rank = 0
	}
	return b.add(fn, s.Size, name)
}

// rank is higher for the better of two names of one function: connect rather
// than __connect, global rather than local.
func rank(name []byte, bind elf.SymBind) uint8 {
	under := uint8(0)
	for under < 3 && int(under) < len(name) && name[under] == '_' {
		under++
	}
	r := 1 + 4*(3-under)
	switch bind {
	case elf.STB_GLOBAL:
		r += 2
	case elf.STB_WEAK:
		r++
	}
	return r
}

// trimName leaves out the version of a symbol (connect@@GLIBC_2.2.5) and Go's
// marks of calling conventions.
func trimName(name []byte) []byte {
	if i := bytes.IndexByte(name, '@'); i > 0 && bytes.IndexByte(name, '[') < 0 {
		name = name[:i]
	}
	name = bytes.TrimSuffix(name, []byte(".abi0"))
	return bytes.TrimSuffix(name, []byte(".abiinternal"))
}

// cString returns the string at off, without its NUL, at most limit bytes of it.
func cString(b []byte, off uint32, limit int) []byte {
	if uint64(off) >= uint64(len(b)) {
		return nil
	}
	b = b[off:]
	b = b[:min(len(b), limit)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}
