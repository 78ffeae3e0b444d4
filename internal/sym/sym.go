// SPDX-License-Identifier: Apache-2.0

// Package sym gives names to addresses: kernel functions, functions of ELF
// files that processes have mapped, and code that a JIT compiler described.
//
// A process may be gone when its stacks are printed. So Processes.Seen is to be
// called when a process first shows up: it takes along what is needed later.
//
// All that is read here (ELF files, perf maps, paths) is under the control of
// the observed processes. Sizes and counts are bounded by constants, files are
// opened without following links out of the process's root, and nothing that
// is not a regular file is opened at all. Names are given as found: whoever
// prints them escapes control characters.
package sym

import (
	"path"
	"strconv"
)

// Modules that are no files.
const (
	Vmlinux = "vmlinux" // the kernel proper
	VDSO    = "[vdso]"  // the kernel's code in user space
	JIT     = "[JIT]"   // code described by a perf map
	Anon    = "[anon]"  // executable memory without a file
)

// A Frame is what is known of one address.
type Frame struct {
	Addr   uint64 // as sampled
	Sym    string // demangled; "" when unknown
	Off    uint64 // from the symbol's start, or from the module's start when Sym is ""
	Module string // Vmlinux, a kernel module, a mapped file's path, VDSO, JIT, Anon; "" when the address is in no mapping
}

// String gives the symbol, or else the module's base name and the offset, or
// else the address.
func (f Frame) String() string {
	switch {
	case f.Sym != "":
		return f.Sym
	case f.Module != "":
		name := f.Module
		if name[0] == '/' {
			name = path.Base(name)
		}
		return name + "+0x" + strconv.FormatUint(f.Off, 16)
	}
	return "0x" + strconv.FormatUint(f.Addr, 16)
}

// stack appends the frames of one stack, innermost first, to buf and returns it.
// All but the first address are return addresses. When a call is the last
// instruction of a function that does not return, they already belong to the
// next function, so it is the byte before that is looked up. A zero ends the
// stack: BPF pads with zeroes.
func stack(buf []Frame, addrs []uint64, frame func(uint64) Frame) []Frame {
	for i, addr := range addrs {
		if addr == 0 {
			break
		}
		if i == 0 {
			buf = append(buf, frame(addr))
			continue
		}
		f := frame(addr - 1)
		if f.Sym == "" {
			// A signal's return address is the first byte of its trampoline.
			if at := frame(addr); at.Sym != "" || f.Module == "" {
				buf = append(buf, at)
				continue
			}
		}
		f.Addr = addr
		if f.Module != "" {
			f.Off++
		}
		buf = append(buf, f)
	}
	return buf
}
