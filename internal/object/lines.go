// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"debug/elf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// WithLines has objects read with the lines of their source code, which the verifier quotes in its log. Without them a
// tool starts sooner and takes less memory.
func WithLines() { withLines = true }

var withLines bool

// struct btf_ext_header of the kernel has the length of the line infos at this offset. They begin with the size of each.
const (
	lineInfoLen  = 20
	lineInfoSize = 4
)

// dropLines shortens the line infos of an object, so that they are never decoded. They keep the size of a line info,
// which cilium/ebpf wants to read.
func dropLines(object []byte) error {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return err
	}
	if s := f.Section(".BTF.ext"); s != nil {
		f.ByteOrder.PutUint32(object[s.Offset+lineInfoLen:], lineInfoSize)
	}
	return nil
}

// nameFunctions gives each function its name as the only line. cilium/ebpf gives a line to each instruction that cannot
// be relocated, and the kernel wants a line of every function or none at all.
func nameFunctions(p *ebpf.ProgramSpec) {
	for i := range p.Instructions {
		if ins := &p.Instructions[i]; ins.Symbol() != "" {
			*ins = ins.WithSource(asm.Comment(ins.Symbol()))
		}
	}
}
