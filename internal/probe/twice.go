// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The kernel skips a program that the processor is in the middle of already. Since
// 7.0 tasks can be preempted inside of tracepoints, so that an event of one task is
// skipped because another one, which does not run now, was stopped in the program.
//
// There each program is attached twice. The first copy leaves the address of its
// context behind, which is on the stack of whoever is at the tracepoint, and so
// belongs to this event alone. The second copy finds it and returns, unless the
// first one was skipped: then it does the work. What both have skipped is lost.

const (
	markBits  = 15
	markShift = 11 // stacks are 16 KiB or more; an interrupt's part of one is far from the task's
	markBytes = 8 << markBits
)

// marks holds the contexts' addresses and, behind them, how often a second copy
// did the work of the first.
var marksSpec = &ebpf.MapSpec{
	Name: "marks", Type: ebpf.Array, KeySize: 4, ValueSize: markBytes + 8, MaxEntries: 1,
}

// A named is a program under its name.
type named struct {
	name string
	spec *ebpf.ProgramSpec
}

// again ends the name of a second copy.
const again = "__again"

// twice is the two copies of a program, in the order to attach them in; one where
// the kernel does not skip programs of this kind so.
func twice(name string, ps *ebpf.ProgramSpec, marks *ebpf.Map) []named {
	kind := kindOf(ps)
	if !slices.Contains([]string{"tp_btf", "raw_tp", "fentry", "fexit"}, kind) {
		return []named{{name, ps}}
	}
	copies := []named{{name, first(ps, marks)}, {name + again, second(ps, marks)}}
	if strings.HasPrefix(kind, "f") { // of functions, who comes last runs first
		slices.Reverse(copies)
	}
	return copies
}

// first is a program that leaves its mark.
func first(ps *ebpf.ProgramSpec, marks *ebpf.Map) *ebpf.ProgramSpec {
	return begin(ps, append(mark(marks), asm.StoreMem(asm.R3, 0, asm.R1, asm.DWord)))
}

// second is a program that works only where there is no mark.
func second(ps *ebpf.ProgramSpec, marks *ebpf.Map) *ebpf.ProgramSpec {
	const alone = "alone"
	return begin(ps, append(mark(marks),
		asm.LoadMem(asm.R4, asm.R3, 0, asm.DWord),
		asm.JNE.Reg(asm.R4, asm.R1, alone),
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.R3, 0, asm.R0, asm.DWord),
		asm.Return(),
		value(asm.R3, marks, markBytes).WithSymbol(alone),
		asm.Mov.Imm(asm.R4, 1),
		asm.AddAtomic.Mem(asm.R3, asm.R4, asm.DWord, 0),
	))
}

// mark leaves the place of this event's mark in R3, and R1 as it was.
func mark(marks *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg32(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, markShift),
		asm.And.Imm(asm.R2, 1<<markBits-1),
		asm.LSh.Imm(asm.R2, 3),
		value(asm.R3, marks, 0),
		asm.Add.Reg(asm.R3, asm.R2),
	}
}

func value(dst asm.Register, m *ebpf.Map, offset uint32) asm.Instruction {
	return asm.LoadMapValue(dst, m.FD(), offset)
}

// begin puts code in front of a program.
func begin(ps *ebpf.ProgramSpec, code asm.Instructions) *ebpf.ProgramSpec {
	ps = ps.Copy()
	old := &ps.Instructions[0]
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(old.Symbol()), btf.FuncMetadata(old)).WithSource(old.Source())
	*old = btf.WithFuncMetadata(old.WithSymbol(""), nil)
	ps.Instructions = append(code, ps.Instructions...)
	return ps
}

// Missed is how many events were lost because the kernel skipped a program.
func (s *Set) Missed() (n uint64) {
	for name, p := range s.Programs {
		nested := slices.ContainsFunc(s.Choices, func(c Choice) bool { return c.Nested && slices.Contains(c.Programs, name) })
		if st, err := p.Stats(); err == nil && !nested && !strings.HasSuffix(name, again) {
			n += st.RecursionMisses
		}
	}
	if s.marks != nil {
		n -= min(n, taken(s.marks))
	}
	return n
}

// taken is how often a second copy did the work.
func taken(marks *ebpf.Map) uint64 {
	b := make([]byte, markBytes+8)
	if marks.Lookup(uint32(0), b) != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[markBytes:])
}
