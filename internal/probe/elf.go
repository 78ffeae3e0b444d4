// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"unsafe"
)

// cilium/ebpf reads BTF without knowing its size: it takes twice as much memory as it needs. In an ELF file it
// knows the size. So BTF is read as one.

// btfELF is a file in memory: a head, then BTF.
type btfELF struct{ head, btf []byte }

// inELF makes a file of BTF in the byte order of this machine.
func inELF(raw []byte) io.ReaderAt {
	const (
		sections    = 4 // none, BTF, names, symbols
		names       = "\x00.BTF\x00.shstrtab\x00.symtab\x00"
		headSize    = uint64(unsafe.Sizeof(elf.Header64{}))
		sectionSize = uint64(unsafe.Sizeof(elf.Section64{}))
		namesAt     = headSize + sections*sectionSize
		symbolsAt   = namesAt + uint64(len(names))
		btfAt       = symbolsAt + elf.Sym64Size
	)
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: uint32(elf.EV_CURRENT), Shoff: headSize,
		Ehsize: uint16(headSize), Shentsize: uint16(sectionSize), Shnum: sections, Shstrndx: 2,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(byteOrder()), byte(elf.EV_CURRENT)
	var b bytes.Buffer
	for _, part := range []any{
		h,
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: btfAt, Size: uint64(len(raw))},
		elf.Section64{Name: 6, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		elf.Section64{Name: 16, Type: uint32(elf.SHT_SYMTAB), Off: symbolsAt, Size: elf.Sym64Size, Link: 2, Entsize: elf.Sym64Size},
		[]byte(names),
		elf.Sym64{},
	} {
		binary.Write(&b, binary.NativeEndian, part) // a buffer takes all, and all parts have a fixed size
	}
	return btfELF{b.Bytes(), raw}
}

func byteOrder() elf.Data {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return elf.ELFDATA2LSB
	}
	return elf.ELFDATA2MSB
}

// ReadAt is that of [io.ReaderAt].
func (f btfELF) ReadAt(p []byte, off int64) (n int, err error) {
	for _, part := range [][]byte{f.head, f.btf} {
		if off < int64(len(part)) {
			n += copy(p[n:], part[off:])
			off = 0
		} else {
			off -= int64(len(part))
		}
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}
