// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"testing"
)

// An image made by the boot protocol gives back what was packed into it,
// whichever of Debian's compressions it uses.
func TestVmlinux(t *testing.T) {
	want := bytes.Repeat([]byte("kernel "), 997)
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(want)
	w.Close()
	packed := map[string][]byte{"gzip": gz.Bytes()}
	for _, tool := range []string{"xz", "zstd"} {
		cmd := exec.Command(tool, "-c")
		cmd.Stdin = bytes.NewReader(want)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: install what `go run ./test/vm packages` prints", tool, err)
		}
		packed[tool] = append(out, 1, 2, 3, 4) // the size, as the kernel's build adds it
	}
	for name, payload := range packed {
		got, err := vmlinux(bzImage(payload))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, %v, want %d bytes", name, len(got), err, len(want))
		}
	}
}

func TestVmlinuxRefused(t *testing.T) {
	short := bzImage([]byte("\x1f\x8b345678"))
	old := bzImage([]byte("\x1f\x8b345678"))
	binary.LittleEndian.PutUint16(old[0x206:], 0x207)
	for name, image := range map[string][]byte{
		"empty":               nil,
		"no boot header":      make([]byte, 4096),
		"old protocol":        old,
		"cut short":           short[:len(short)-9],
		"unknown compression": bzImage([]byte("plain text")),
	} {
		if got, err := vmlinux(image); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
}

func TestBTFOf(t *testing.T) {
	want := []byte("\x9f\xeb\x01 the types")
	got, err := btfOf(elfWith(".BTF", want))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := btfOf(elfWith(".BTX", want)); err == nil {
		t.Errorf("a file without .BTF gave %q", got)
	}
}

// bzImage puts a payload 16 bytes after two sectors of setup code.
func bzImage(payload []byte) []byte {
	const sects, offset = 2, 16
	image := make([]byte, (sects+1)*512+offset)
	image[0x1f1] = sects
	copy(image[0x202:], "HdrS")
	le := binary.LittleEndian
	le.PutUint16(image[0x206:], 0x20f)
	le.PutUint32(image[0x248:], offset)
	le.PutUint32(image[0x24c:], uint32(len(payload)))
	image = append(image, payload...)
	return append(image, "and more"...)
}

// elfWith is a file of one section and the names of sections.
func elfWith(name string, data []byte) []byte {
	names := "\x00" + name + "\x00.shstrtab\x00"
	const head, entry = 64, 64
	var b bytes.Buffer
	table := uint64(head + len(data) + len(names))
	binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: table, Ehsize: head, Shentsize: entry, Shnum: 3, Shstrndx: 2,
	})
	b.Write(data)
	b.WriteString(names)
	binary.Write(&b, binary.LittleEndian, []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(data))},
		{Name: uint32(2 + len(name)), Type: uint32(elf.SHT_STRTAB), Off: head + uint64(len(data)), Size: uint64(len(names))},
	})
	return b.Bytes()
}
