// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// compressions identifies the kind of a payload by its first bytes.
var compressions = []struct {
	magic string
	tool  []string // nil: the standard library can
}{
	{"\x1f\x8b", nil},
	{"\xfd7zXZ\x00", []string{"xz", "-dc"}},
	{"\x28\xb5\x2f\xfd", []string{"zstd", "-qdc"}},
	{"\x02\x21\x4c\x18", []string{"lz4", "-dc"}}, // Debian has none of these
}

// Vmlinux unpacks the kernel. On amd64 it is an ELF file without symbols, about
// 60 MB; on arm64 the memory's content, with no sections to be told apart.
func (k Kernel) Vmlinux() ([]byte, error) {
	image, err := os.ReadFile(k.Vmlinuz)
	if err != nil {
		return nil, err
	}
	if k.Arch == "arm64" {
		return arm64Image(image)
	}
	return vmlinux(image)
}

// ModuleBTF is a module's raw BTF, split from that of vmlinux. 5.10 has none.
func (k Kernel) ModuleBTF(name string) ([]byte, error) {
	file, err := os.ReadFile(k.Module(name))
	if err != nil {
		return nil, err
	}
	btf, err := btfOf(file)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	return btf, nil
}

// vmlinux unpacks the ELF file inside a bzImage.
func vmlinux(image []byte) ([]byte, error) {
	payload, err := payload(image)
	if err != nil {
		return nil, err
	}
	for _, c := range compressions {
		if !bytes.HasPrefix(payload, []byte(c.magic)) {
			continue
		}
		if c.tool == nil {
			r, err := gzip.NewReader(bytes.NewReader(payload))
			if err != nil {
				return nil, fmt.Errorf("vmlinuz: %w", err)
			}
			r.Multistream(false)
			return io.ReadAll(r)
		}
		// The kernel's build adds the unpacked size to all but gzip, which has it.
		file, err := pipe(payload[:len(payload)-4], c.tool)
		if err != nil {
			return nil, fmt.Errorf("vmlinuz: %w", err)
		}
		return file, nil
	}
	return nil, fmt.Errorf("vmlinuz: compressed in an unknown way: % x", payload[:min(8, len(payload))])
}

// payload finds the compressed kernel by the fields of the boot protocol:
// setup_sects, magic, version, payload_offset and payload_length.
func payload(image []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("vmlinuz: not a bzImage")
	}
	if v := le.Uint16(image[0x206:]); v < 0x208 {
		return nil, fmt.Errorf("vmlinuz: boot protocol %#x does not tell where the kernel is", v)
	}
	sects := int64(image[0x1f1])
	if sects == 0 {
		sects = 4
	}
	start := (sects+1)*512 + int64(le.Uint32(image[0x248:]))
	end := start + int64(le.Uint32(image[0x24c:]))
	if end-start < 8 || end > int64(len(image)) {
		return nil, fmt.Errorf("vmlinuz: payload at %d to %d of %d bytes", start, end, len(image))
	}
	return image[start:end], nil
}

// btfOf takes the .BTF section out of an ELF file.
func btfOf(file []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	s := f.Section(".BTF")
	if s == nil {
		return nil, errors.New("no .BTF section")
	}
	return s.Data()
}

func pipe(in []byte, tool []string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(tool[0], tool[1:]...)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", tool[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
