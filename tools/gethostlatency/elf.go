// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"debug/elf"
	"io"
	"runtime"
	"slices"
)

// functions finds the offsets of functions in an ELF file: exported functions,
// and with static all named ones. It is nil for files of another architecture or
// of 32 bits, which pass arguments differently.
func functions(r io.ReaderAt, static bool) (out map[string]uint64) {
	defer func() {
		if recover() != nil { // the file is not trusted
			out = nil
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil || f.Class != elf.ELFCLASS64 || f.Machine != machine {
		return nil
	}
	symbols, _ := f.DynamicSymbols()
	if static {
		more, _ := f.Symbols()
		symbols = append(symbols, more...)
	}
	out = map[string]uint64{}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || elf.ST_TYPE(s.Info) != elf.STT_FUNC || !static && !slices.Contains(calls[:], s.Name) {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Vaddr <= s.Value && s.Value < p.Vaddr+p.Filesz {
				out[s.Name] = s.Value - p.Vaddr + p.Off
			}
		}
	}
	return out
}

var machine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
