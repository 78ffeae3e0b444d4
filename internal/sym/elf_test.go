// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A part is a section of an ELF file that a test makes.
type part struct {
	name string
	typ  elf.SectionType
	addr uint64
	link uint32
	data []byte
}

// image makes an ELF file with one executable segment, which starts at offset
// 0x40 of the file and at address 0x401040, and these sections from number 1 on.
// There is no code in it.
func image(is64 bool, machine elf.Machine, parts ...part) []byte {
	const segment, size = 0x401040, 0x2000
	names := []byte{0}
	body := make([]byte, 64)
	parts = append(parts, part{name: ".shstrtab", typ: elf.SHT_STRTAB})
	heads := []elf.Section64{{}}
	for _, p := range parts {
		h := elf.Section64{Name: uint32(len(names)), Type: uint32(p.typ), Addr: p.addr, Link: p.link}
		names = append(append(names, p.name...), 0)
		if p.name == ".shstrtab" {
			p.data = names
		}
		h.Off, h.Size = uint64(len(body)), uint64(len(p.data))
		if p.name == ".text" {
			h.Off, h.Size = 0x40, size
		}
		body = append(body, p.data...)
		heads = append(heads, h)
	}
	phoff := len(body)
	prog := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X | elf.PF_R), Off: 0x40, Vaddr: segment, Filesz: size, Memsz: size}
	if is64 {
		body, _ = binary.Append(body, le, prog)
	} else {
		body, _ = binary.Append(body, le, elf.Prog32{Type: prog.Type, Flags: prog.Flags, Off: uint32(prog.Off),
			Vaddr: uint32(prog.Vaddr), Filesz: size, Memsz: size})
	}
	shoff := len(body)
	for _, h := range heads {
		if is64 {
			body, _ = binary.Append(body, le, h)
		} else {
			body, _ = binary.Append(body, le, elf.Section32{Name: h.Name, Type: h.Type, Addr: uint32(h.Addr),
				Off: uint32(h.Off), Size: uint32(h.Size), Link: h.Link})
		}
	}
	ident := [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1}
	var head []byte
	if is64 {
		head, _ = binary.Append(nil, le, elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine),
			Phoff: uint64(phoff), Shoff: uint64(shoff), Phentsize: 56, Phnum: 1, Shentsize: 64,
			Shnum: uint16(len(heads)), Shstrndx: uint16(len(heads) - 1)})
	} else {
		ident[4] = byte(elf.ELFCLASS32)
		head, _ = binary.Append(nil, le, elf.Header32{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine),
			Phoff: uint32(phoff), Shoff: uint32(shoff), Phentsize: 32, Phnum: 1, Shentsize: 40,
			Shnum: uint16(len(heads)), Shstrndx: uint16(len(heads) - 1)})
	}
	copy(body, head)
	return body
}

// A symdef is a symbol in section 1.
type symdef struct {
	name       string
	addr, size uint64
	typ        elf.SymType
	bind       elf.SymBind
}

// symbols makes a symbol table, to be section 2, and its names, section 3.
func symbols(is64 bool, typ elf.SectionType, defs ...symdef) []part {
	names := []byte{0}
	var tab []byte
	for _, d := range defs {
		s := elf.Sym64{Name: uint32(len(names)), Info: byte(d.bind)<<4 | byte(d.typ), Shndx: 1, Value: d.addr, Size: d.size}
		names = append(append(names, d.name...), 0)
		if is64 {
			tab, _ = binary.Append(tab, le, s)
		} else {
			tab, _ = binary.Append(tab, le, elf.Sym32{Name: s.Name, Info: s.Info, Shndx: 1, Value: uint32(d.addr), Size: uint32(d.size)})
		}
	}
	return []part{
		{name: ".text", typ: elf.SHT_PROGBITS, addr: 0x401040},
		{name: ".symtab", typ: typ, link: 3, data: tab},
		{name: ".strtab", typ: elf.SHT_STRTAB, data: names},
	}
}

var defs = []symdef{
	{"plain", 0x401100, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
	{"resolver", 0x401200, 0x10, elf.STT_GNU_IFUNC, elf.STB_GLOBAL},
	{"object", 0x401300, 0x10, elf.STT_OBJECT, elf.STB_GLOBAL},
	{"__connect", 0x401400, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
	{"connect", 0x401400, 0x10, elf.STT_FUNC, elf.STB_WEAK},
	{"local", 0x401500, 0x10, elf.STT_FUNC, elf.STB_LOCAL},
	{"global", 0x401500, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
	{"unsized", 0x401600, 0, elf.STT_FUNC, elf.STB_GLOBAL},
	{"sized", 0x401600, 0x20, elf.STT_FUNC, elf.STB_LOCAL},
	{"versioned@@GLIBC_2.2.5", 0x401700, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
	{"outer", 0x401800, 0x100, elf.STT_FUNC, elf.STB_GLOBAL},
	{"inner", 0x401840, 0x10, elf.STT_FUNC, elf.STB_LOCAL},
	{"runtime.goexit.abi0", 0x401900, 0x10, elf.STT_FUNC, elf.STB_LOCAL},
	{"_ZN5outer5inner4funcEi", 0x401a00, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
	{"tail", 0x403000, 0, elf.STT_FUNC, elf.STB_GLOBAL},
	{"", 0x401f00, 0x10, elf.STT_FUNC, elf.STB_GLOBAL},
}

func TestSymbols(t *testing.T) {
	for _, is64 := range []bool{true, false} {
		for _, typ := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			data := image(is64, elf.EM_X86_64, symbols(is64, typ, defs...)...)
			tab, err := parseELF(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			check(t, tab)
			for addr, want := range map[uint64]string{
				0x4010ff: "", 0x401100: "plain", 0x40110f: "plain", 0x401110: "",
				0x401208: "resolver",
				0x401300: "",
				0x401400: "connect",
				0x401500: "global",
				0x401600: "sized", 0x401621: "",
				0x401700: "versioned",
				0x40183f: "outer", 0x401840: "inner", 0x401850: "outer", 0x4018ff: "outer",
				0x401900: "runtime.goexit",
				0x401a08: "outer::inner::func",
				0x401f00: "",
				0x403000: "tail", 0x40303f: "tail", 0x403040: "", // ends with .text
			} {
				sym := ""
				if i := tab.find(addr); i >= 0 {
					sym = tab.sym(i)
				}
				if sym != want {
					t.Errorf("64 bits: %v, %v: %#x is %q, want %q", is64, typ, addr, sym, want)
				}
			}
		}
	}
}

func TestThumb(t *testing.T) {
	data := image(false, elf.EM_ARM, symbols(false, elf.SHT_SYMTAB, symdef{"thumb", 0x401101, 0x10, elf.STT_FUNC, elf.STB_GLOBAL})...)
	tab, err := parseELF(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if i := tab.find(0x401100); i < 0 || tab.sym(i) != "thumb" {
		t.Error("the first byte of a Thumb function is not found")
	}
}

func TestObject(t *testing.T) {
	data := image(true, elf.EM_X86_64)
	f, err := openELF(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	o := f.object()
	if o.base != 0x401000 {
		t.Errorf("base is %#x, want 0x401000", o.base)
	}
	for off, want := range map[uint64]uint64{0x3f: 0, 0x40: 0x401040, 0x203f: 0x40303f, 0x2040: 0} {
		if got, ok := o.vaddr(off); got != want || ok != (want != 0) {
			t.Errorf("offset %#x is address %#x, %v; want %#x", off, got, ok, want)
		}
	}
}

// Go's table must say what debug/gosym says.
func TestGoFuncs(t *testing.T) {
	for _, flags := range [][]string{{"-ldflags=-s -w"}, {"-buildmode=pie", "-ldflags=-s -w"}} {
		exe := goBuild(t, "child", false, flags...)
		ref, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer ref.Close()
		if ref.Section(".symtab") != nil {
			t.Fatal("not stripped")
		}
		data, err := ref.Section(".gopclntab").Data()
		if err != nil {
			t.Fatal(err)
		}
		want, err := gosym.NewTable(nil, gosym.NewLineTable(data, ref.Section(".text").Addr))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, _ := f.Stat()
		got, err := parseELF(f, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		check(t, got)
		if n := len(want.Funcs); len(got.addr) < n*99/100 || n < 1000 {
			t.Errorf("%v: got %d functions, gosym has %d", flags, len(got.addr), n)
		}
		for _, fn := range want.Funcs {
			i := got.find(fn.Entry)
			if fn.End == fn.Entry || i >= 0 && got.addr[i] == fn.Entry && got.raw(i) == fn.Name {
				continue
			}
			t.Errorf("%v: %s at %#x is %d", flags, fn.Name, fn.Entry, i)
		}
	}
}

// The layouts of older releases, two functions each.
func TestGoLayouts(t *testing.T) {
	word64 := func(b []byte, n ...uint64) []byte {
		for _, v := range n {
			b = le.AppendUint64(b, v)
		}
		return b
	}
	word32 := func(b []byte, n ...uint32) []byte {
		for _, v := range n {
			b = le.AppendUint32(b, v)
		}
		return b
	}
	head := func(magic uint32) []byte { return append(word32(nil, magic), 0, 0, 1, 8) }
	names := "\x00main.a\x00main.b\x00"

	// 1.2: number, table, records and names, all relative to the start.
	v12 := word64(head(pcln12), 2, 0x1000, 56, 0x1010, 72, 0x1030)
	v12 = word32(word64(v12, 0x1000), 88+1, 0)
	v12 = word32(word64(v12, 0x1010), 88+8, 0)
	v12 = append(v12, names...)

	// 1.16: offsets of names and of the table, to which records are relative.
	v116 := word64(head(pcln116), 2, 0, 64, 0, 0, 0, 80)
	v116 = append(v116, names...)
	v116 = append(v116, make([]byte, 80-len(v116))...)
	v116 = word64(v116, 0x1000, 40, 0x1010, 56, 0x1030)
	v116 = word32(word64(v116, 0x1000), 1, 0)
	v116 = word32(word64(v116, 0x1010), 8, 0)

	// 1.18: 32 bits, relative to the text.
	v118 := word64(head(pcln118), 2, 0, 0, 72, 0, 0, 0, 88)
	v118 = append(v118, names...)
	v118 = append(v118, make([]byte, 88-len(v118))...)
	v118 = word32(v118, 0, 20, 0x10, 28, 0x30, 0, 1, 0x10, 8)

	for name, data := range map[string][]byte{"1.2": v12, "1.16": v116, "1.18": v118} {
		p, err := openPcln(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.relative {
			p.text = 0x1000
		}
		var b builder
		p.funcs(&b)
		b.sort()
		tab := b.table()
		for addr, want := range map[uint64]string{0xfff: "", 0x1000: "main.a", 0x100f: "main.a", 0x1010: "main.b", 0x102f: "main.b", 0x1030: ""} {
			got := ""
			if i := tab.find(addr); i >= 0 {
				got = tab.raw(i)
			}
			if got != want {
				t.Errorf("%s: %#x is %q, want %q", name, addr, got, want)
			}
		}
		// gosym agrees; it reads more of each record.
		ref, err := gosym.NewTable(nil, gosym.NewLineTable(append(data, make([]byte, 64)...), 0x1000))
		if err != nil || name != "1.2" && (len(ref.Funcs) != 2 || ref.Funcs[1].Name != "main.b") {
			t.Errorf("%s: gosym reads it otherwise: %v %v", name, ref, err)
		}
	}
}

// Until 1.25, the table may be somewhere in another section, and the start of the
// text in a relocation.
func TestGoHidden(t *testing.T) {
	const text = 0x401100
	pcln := append(le.AppendUint32(nil, pcln120), 0, 0, 1, 8)
	for _, v := range []uint64{1, 0, 0, 72, 0, 0, 0, 80} {
		pcln = le.AppendUint64(pcln, v)
	}
	pcln = append(pcln, "main.ab\x00"...)
	for _, v := range []uint32{0, 12, 16, 0, 0} {
		pcln = le.AppendUint32(pcln, v)
	}
	// A header that is not aligned, and one that is damaged, come before it.
	magic := le.AppendUint32(nil, pcln120)
	data := append([]byte("\x00\x00\x00"), magic...)
	data = append(data, make([]byte, 25)...)
	data = append(append(data, magic...), make([]byte, 28)...)
	at := len(data)
	data = append(data, pcln...)
	// The address is in the segment, where the file has zeroes.
	rel := le.AppendUint64(nil, 0x401800+uint64(at)+24)
	rel = le.AppendUint64(rel, uint64(elf.R_AARCH64_RELATIVE))
	rel = le.AppendUint64(rel, text)
	read := func(parts ...part) *table {
		parts = append([]part{{name: ".text", typ: elf.SHT_PROGBITS, addr: 0x401040}}, parts...)
		img := image(true, elf.EM_AARCH64, parts...)
		img = append(img, make([]byte, 4096)...)
		tab, err := parseELF(bytes.NewReader(img), int64(len(img)))
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	ro := part{name: ".data.rel.ro", typ: elf.SHT_PROGBITS, addr: 0x401800, data: data}
	info := part{name: ".go.buildinfo", typ: elf.SHT_PROGBITS, data: []byte("x")}
	rela := part{name: ".rela.dyn", typ: elf.SHT_RELA, data: append(make([]byte, 24), rel...)}
	if tab := read(ro, info, rela); tab.find(text) < 0 || tab.raw(0) != "main.ab" || tab.addr[0] != text {
		t.Errorf("got functions at %#x, want one at %#x", tab.addr, text)
	}
	if tab := read(ro, info); len(tab.addr) != 1 || tab.addr[0] != 0x401040 {
		t.Errorf("without a relocation: got functions at %#x, want one at the start of .text", tab.addr)
	}
	if tab := read(ro, rela); len(tab.addr) != 0 {
		t.Errorf("a table was found in what is not Go")
	}
	// A header right at the end.
	ro.data = append(make([]byte, 16), magic...)
	ro.data = append(ro.data, 0, 0)
	if tab := read(ro, info); len(tab.addr) != 0 {
		t.Errorf("a table was found in %d bytes", len(ro.data))
	}
}

// Each file here would hurt a reader that believes it.
func TestHostile(t *testing.T) {
	good := image(true, elf.EM_X86_64, symbols(true, elf.SHT_SYMTAB, defs...)...)
	read := func(data []byte) *table {
		tab, _ := parseELF(bytes.NewReader(data), int64(len(data)))
		return tab
	}
	for n := range len(good) {
		check(t, read(good[:n]))
	}
	// Each 16-bit and 64-bit field of headers at its largest.
	shoff := le.Uint64(good[0x28:])
	for at := 0; at < len(good); at++ {
		if at == 0x80 {
			at = int(shoff) - 256
		}
		for _, n := range []int{2, 4, 8} {
			if at+n > len(good) {
				continue
			}
			bad := bytes.Clone(good)
			copy(bad[at:at+n], "\xff\xff\xff\xff\xff\xff\xff\xff")
			check(t, read(bad))
		}
	}

	// Many symbols with one long name: the names are bounded.
	long := strings.Repeat("x", maxName*2)
	many := make([]symdef, 2000)
	for i := range many {
		many[i] = symdef{"", 0x401100 + uint64(i), 1, elf.STT_FUNC, elf.STB_GLOBAL}
	}
	parts := symbols(true, elf.SHT_SYMTAB, many...)
	for i := range many {
		le.PutUint32(parts[1].data[24*i:], 0)
	}
	parts[2].data = append([]byte(long), 0)
	tab := read(image(true, elf.EM_X86_64, parts...))
	if len(tab.addr) != len(many) || len(tab.raw(0)) != maxName {
		t.Errorf("got %d functions, the first with a name of %d bytes; want %d and %d", len(tab.addr), len(tab.raw(0)), len(many), maxName)
	}
	b := builder{text: make([]byte, maxNames)}
	if b.add(function{}, 1, []byte("more")) {
		t.Error("there was room for more names")
	}

	// A small file that says it is large must not take much.
	small := bytes.Clone(good)
	for i, h := 0, small[shoff:]; i < 4; i++ {
		le.PutUint64(h[64*i+0x20:], maxPart-1) // sh_size
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read(small)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("took %d bytes for a file of %d", took, len(small))
	}

	// A file with a hole says that it is large.
	hole := filepath.Join(t.TempDir(), "hole")
	bad := bytes.Clone(good)
	for i, h := 0, bad[shoff:]; i < 4; i++ {
		le.PutUint64(h[64*i+0x20:], 1<<40) // sh_size
	}
	if err := os.WriteFile(hole, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(hole, 1<<41); err != nil {
		t.Skip(err) // the file system has no holes this large
	}
	f, err := os.Open(hole)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if tab, err := parseELF(f, 1<<41); err == nil || len(tab.addr) > 0 {
		t.Errorf("got %d functions and error %v of a table of a terabyte", len(tab.addr), err)
	}
}

// note makes a section with a build-id.
func note(id string) part {
	b := le.AppendUint32(nil, 4)
	b = le.AppendUint32(b, uint32(len(id)))
	b = le.AppendUint32(b, 3)
	b = append(b, "GNU\x00"+id...)
	return part{name: ".note.gnu.build-id", typ: elf.SHT_NOTE, data: b}
}

// link makes a section that names the file with the symbols.
func link(name string, crc uint32) part {
	b := append([]byte(name), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return part{name: ".gnu_debuglink", typ: elf.SHT_PROGBITS, data: le.AppendUint32(b, crc)}
}

func TestDebugFile(t *testing.T) {
	const id = "\xab\xcd\xef\x01"
	with := image(true, elf.EM_X86_64, append(symbols(true, elf.SHT_SYMTAB, defs...), note(id))...)
	without := image(true, elf.EM_X86_64, symbols(true, elf.SHT_SYMTAB, defs...)...)
	crc := crc32.ChecksumIEEE(without)
	for _, x := range []struct {
		what     string
		stripped []byte
		at       string
		debug    []byte
		want     bool
	}{
		{"by build-id", image(true, elf.EM_X86_64, note(id)), "/usr/lib/debug/.build-id/ab/cdef01.debug", with, true},
		{"by build-id, of another build", image(true, elf.EM_X86_64, note(id)), "/usr/lib/debug/.build-id/ab/cdef01.debug", without, false},
		{"by link, same directory", image(true, elf.EM_X86_64, link("x.debug", crc)), "/opt/bin/x.debug", without, true},
		{"by link, .debug", image(true, elf.EM_X86_64, link("x.debug", crc)), "/opt/bin/.debug/x.debug", without, true},
		{"by link, global", image(true, elf.EM_X86_64, link("x.debug", crc)), "/usr/lib/debug/opt/bin/x.debug", without, true},
		{"by link and build-id", image(true, elf.EM_X86_64, link("x.debug", 0), note(id)), "/opt/bin/x.debug", with, true},
		{"by link, wrong sum", image(true, elf.EM_X86_64, link("x.debug", crc+1)), "/opt/bin/x.debug", without, false},
		{"by link, with a path", image(true, elf.EM_X86_64, link("../x.debug", crc)), "/opt/x.debug", without, false},
		{"by link, not ELF", image(true, elf.EM_X86_64, link("x.debug", crc32.ChecksumIEEE([]byte("text")))), "/opt/bin/x.debug", []byte("text"), false},
		{"nothing", image(true, elf.EM_X86_64), "/opt/bin/x.debug", without, false},
	} {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"/opt/bin/x": x.stripped, x.at: x.debug} {
			if err := os.MkdirAll(filepath.Dir(dir+name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+name, data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		root, err := unix.Open(dir, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(root)
		at, err := findIn(root, "/opt/bin/x", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer at.close()
		obj, src, err := peek(place{root: root, paths: root}, at, "/opt/bin/x")
		if err != nil || obj == nil || src == nil {
			t.Fatalf("%s: %v, %v, %v", x.what, obj, src, err)
		}
		defer src.Close()
		info, _ := src.Stat()
		tab, _ := parseELF(src, info.Size())
		if got := tab.find(0x401100) >= 0; got != x.want {
			t.Errorf("%s: found: %v, want %v", x.what, got, x.want)
		}
	}
}

// The same with what distributions use to make such files.
func TestStripped(t *testing.T) {
	full := cc(t, "-pie", "-fPIE")
	dir := t.TempDir()
	exe := filepath.Join(dir, "exe")
	tool(t, "objcopy", "--only-keep-debug", full, exe+".debug")
	tool(t, "strip", "-o", exe, full)
	c := start(t, exec.Command(exe))
	var p Processes
	p.Seen(c.pid())
	f := p.Frame(c.pid(), c.pcs[0])
	p.Close()
	if f.Sym != "" || f.Module != exe || f.Off == 0 || f.Off > 1<<20 {
		t.Errorf("without the symbols: got %#v", f)
	}
	c.end()
	tool(t, "objcopy", "--add-gnu-debuglink="+exe+".debug", exe)
	c = start(t, exec.Command(exe))
	var q Processes
	defer q.Close()
	q.Seen(c.pid())
	c.end()
	os.Remove(exe + ".debug")
	expect(t, &q, c, exe, "outer::Thing::call", "bare", "sized")
}

func FuzzELF(f *testing.F) {
	parts := symbols(true, elf.SHT_SYMTAB, defs...)
	f.Add(image(true, elf.EM_X86_64, append(parts, note("\x01\x02\x03\x04"), link("x.debug", 1))...))
	f.Add(image(false, elf.EM_ARM, symbols(false, elf.SHT_DYNSYM, defs...)...))
	pcln := le.AppendUint32(nil, pcln120)
	pcln = append(pcln, 0, 0, 1, 8)
	for _, v := range []uint64{1, 0, 0, 72, 0, 0, 0, 80} {
		pcln = le.AppendUint64(pcln, v)
	}
	pcln = append(pcln, "main.ab\x00"...)
	for _, v := range []uint32{0, 12, 16, 0, 0} {
		pcln = le.AppendUint32(pcln, v)
	}
	f.Add(image(true, elf.EM_AARCH64,
		part{name: ".text", typ: elf.SHT_PROGBITS, addr: 0x401040},
		part{name: ".gopclntab", typ: elf.SHT_PROGBITS, addr: 0x402000, data: pcln},
		part{name: ".rela.dyn", typ: elf.SHT_RELA, data: make([]byte, 48)},
		part{name: ".go.module", typ: elf.SHT_PROGBITS, addr: 0x401100, data: make([]byte, 200)}))
	f.Add(image(true, elf.EM_AARCH64,
		part{name: ".data.rel.ro", typ: elf.SHT_PROGBITS, addr: 0x402000, data: pcln},
		part{name: ".go.buildinfo", typ: elf.SHT_PROGBITS, data: make([]byte, 8)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		tab, _ := parseELF(r, int64(len(data)))
		check(t, tab)
		if e, err := openELF(r, int64(len(data))); err == nil {
			e.buildID()
			e.debugLink()
			o := e.object()
			o.vaddr(uint64(len(data)))
		}
	})
}
