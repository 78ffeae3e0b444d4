// SPDX-License-Identifier: Apache-2.0

package kbtf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// TestFile reads the same types from BTF as the kernel has it and from an ELF file that
// holds it, and refuses what is neither.
func TestFile(t *testing.T) {
	raw, err := os.ReadFile(Dir + "vmlinux")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"raw": raw, "elf": inELF(".BTF", raw)} {
		types, err := File(write(t, dir, name, content))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if args, ok := types.Tracepoint("inet_sock_set_state"); !ok || len(args) != 3 {
			t.Errorf("%s: inet_sock_set_state has arguments %v, want 3", name, args)
		}
	}
	for name, content := range map[string][]byte{"text": []byte("root:x:0:0"), "empty": nil, "other": inELF(".text", raw), "cut": raw[:len(raw)/2]} {
		if _, err := File(write(t, dir, name, content)); err == nil {
			t.Errorf("%s is taken for BTF", name)
		}
	}
}

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// inELF is a file of two sections: the names, and one that holds data.
func inELF(section string, data []byte) []byte {
	names := "\x00.shstrtab\x00" + section + "\x00"
	const head, entry = 64, 64
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: head, Shentsize: entry, Shnum: 3, Shstrndx: 1,
		Shoff: uint64(head + len(names) + len(data)),
	}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, h)
	b.WriteString(names)
	b.Write(data)
	for _, s := range []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: head, Size: uint64(len(names))},
		{Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: uint64(head + len(names)), Size: uint64(len(data))},
	} {
		binary.Write(&b, binary.LittleEndian, s)
	}
	return b.Bytes()
}
