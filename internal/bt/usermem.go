// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
)

// A userSymbol is a variable of an ELF file. A file that moves is one that can be
// loaded at any address.
type userSymbol struct {
	addr, size uint64
	moves      bool
}

// userSymbols are the variables of a file, by name.
func userSymbols(path string) (map[string]userSymbol, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	all := map[string]userSymbol{}
	for _, s := range append(static, dynamic...) {
		if t := elf.ST_TYPE(s.Info); t != elf.STT_TLS && t != elf.STT_FILE && s.Section != elf.SHN_UNDEF && s.Value != 0 {
			all[s.Name] = userSymbol{s.Value, s.Size, f.Type == elf.ET_DYN}
		}
	}
	return all, nil
}

// loadAddress is the address that a place in a file has when the file is loaded at
// its own addresses.
func loadAddress(path string, off uint64) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && off >= p.Off && off-p.Off < p.Filesz {
			return off - p.Off + p.Vaddr, nil
		}
	}
	return 0, fmt.Errorf("%s has no code at %#x", path, off)
}

// placeOf is the address of a probe in a file that is not moved.
func (t *Target) placeOf() (uint64, error) {
	if t.Addr != 0 {
		return loadAddress(t.Path, t.Addr)
	}
	all, err := userSymbols(t.Path)
	if err != nil {
		return 0, err
	}
	for name, s := range all {
		if name, _, _ = strings.Cut(name, "@"); name == t.Name {
			return s.addr + t.Offset, nil
		}
	}
	return 0, fmt.Errorf("%s has no %s", t.Path, t.Name)
}

// userAddress is uaddr("name"): where a variable of the probe's file is.
func (c *checker) userAddress(e *Call) *Type {
	name := c.text(e.Args[0])
	if c.target.Way != Uprobe && c.target.Way != Uretprobe {
		c.failAt(e, "uaddr() is for uprobe, uretprobe and usdt: %s has no file", c.target.Kind)
	}
	c.uses.types, c.uses.fields = true, true
	all, err := userSymbols(c.target.Path)
	if err != nil {
		c.failAt(e, "%v", err)
	}
	s, ok := all[name]
	if !ok {
		c.failAt(e, "%s has no symbol %s%s", c.target.Path, name, didYouMean(name, slices.Sorted(maps.Keys(all))))
	}
	if s.moves && c.target.Way == Uretprobe {
		c.failAt(e, "where %s was loaded is known when a function begins: use uaddr() in uprobe, and keep it in a map", c.target.Path)
	}
	t := map[uint64]*Type{1: typeU8, 2: {Kind: Number, Size: 2}, 4: typeU32}[s.size]
	if t == nil {
		t = typeU64
	}
	return pointerTo(t, InUser)
}

// userAddress leaves the address in R0. A file that was loaded elsewhere has been
// moved as far as the instruction that the probe is at.
func (e *emitter) userAddress(x *Call) {
	all, _ := userSymbols(e.target.Path)
	s := all[x.Args[0].(*Str).V]
	e.add(asm.LoadImm(asm.R0, int64(s.addr), asm.DWord))
	if !s.moves {
		return
	}
	at, err := e.target.placeOf()
	if err != nil {
		e.fail(x, "%v", err)
	}
	ip, ok := registers["ip"]
	if !ok {
		ip = registers["pc"]
	}
	e.add(asm.LoadMem(asm.R1, asm.R6, ip, asm.DWord), asm.LoadImm(asm.R2, int64(at), asm.DWord), asm.Sub.Reg(asm.R1, asm.R2), asm.Add.Reg(asm.R0, asm.R1))
}

// writeUser is write_user(to, what, length), which says whether it could.
func (c *checker) writeUser(e *Call) *Type {
	if !c.unsafe {
		c.failAt(e, "write_user() is refused without --unsafe")
	}
	if !c.kernel.writes() {
		panic(&unsupportedError{c.src.errorf(e.pos, e.end, "this kernel does not let programs write to the memory of processes (lockdown), or we lack CAP_SYS_ADMIN")})
	}
	if t := c.expr(e.Args[0]); !t.number() {
		c.failAt(e.Args[0], "write_user() writes to an address, not to %s", t)
	}
	t := c.value(e.Args[1])
	if t.Kind == Pointer || !t.word() && t.Kind != String && t.Kind != Array && t.Kind != Record && t != unknown {
		c.failAt(e.Args[1], "write_user() writes numbers, strings, arrays and structs, not %s", t)
	}
	n, ok := c.constant(e.Args[2])
	if c.expr(e.Args[2]); !ok || n < 1 {
		c.failAt(e.Args[2], "the length must be a constant")
	}
	if n > int64(kept(t).store()) && c.final {
		c.failAt(e.Args[2], "%s has %d bytes", t, kept(t).store())
	}
	return typeBool
}

// writeUser leaves 1 in R0 if the bytes were written.
func (e *emitter) writeUser(x *Call) {
	t := kept(x.Args[1].typ())
	n, _ := e.c.constant(x.Args[2])
	from, to := e.alloc(t.store()), e.slot()
	e.value(x.Args[1], t, from)
	e.scalar(x.Args[0])
	e.store(to, asm.R0)
	done := e.label("written")
	e.load(asm.R1, to)
	e.address(asm.R2, from)
	e.add(asm.Mov.Imm(asm.R3, int32(n)), asm.FnProbeWriteUser.Call(),
		asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R0, 0), asm.JNE.Imm(asm.R1, 0, done), asm.Mov.Imm(asm.R0, 1))
	e.here(done)
}

// override is override(value): the function is not run and returns the value.
func (c *checker) override(e *Call) *Type {
	if !c.unsafe {
		c.failAt(e, "override() is refused without --unsafe")
	}
	if c.target.Kind != Kprobe {
		c.failAt(e, "override() is for kprobe: the function has not begun there")
	}
	if !c.kernel.overrides() {
		panic(&unsupportedError{c.src.errorf(e.pos, e.end, "this kernel cannot override functions (CONFIG_BPF_KPROBE_OVERRIDE)")})
	}
	if c.target.Way != Kprobe {
		panic(&unsupportedError{c.src.errorf(e.pos, e.end, "override() needs kprobes, which this kernel does not have")})
	}
	c.uses.context = true
	c.numbers(e)
	return typeVoid
}

func (e *emitter) override(x *Call) {
	e.scalar(x.Args[0])
	e.add(asm.Mov.Reg(asm.R2, asm.R0), asm.Mov.Reg(asm.R1, asm.R6), asm.FnOverrideReturn.Call())
}

// commOf is the name of a process as it is now.
func commOf(pid uint64) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "N/A" // as bpftrace says it
	}
	return strings.TrimSuffix(string(data), "\n")
}
