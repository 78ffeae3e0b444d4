// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// constants are the sections of constants of an object, with their final values.
type constants map[string][]byte

func constantsOf(spec *ebpf.CollectionSpec) constants {
	out := constants{}
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".rodata") || len(m.Contents) == 0 {
			continue
		}
		if b, ok := m.Contents[0].Value.([]byte); ok {
			out[name] = bytes.Clone(b)
		}
	}
	for _, v := range spec.Variables {
		if b := out[v.SectionName]; b != nil {
			copy(b[v.Offset:], v.Value)
		}
	}
	return out
}

// fold returns a program with constants in the place of the loads that read them. The verifier
// knows the values too, and removes the code that they switch off. But it leaves the loads: 15
// bytes of machine code and a word of memory each time, and a program that runs often has dozens
// of them.
//
// It follows addresses of constants through the registers. No instruction moves: an address that
// nobody reads any more becomes two jumps to the next instruction, which the verifier removes.
func (c constants) fold(ps *ebpf.ProgramSpec, order binary.ByteOrder) *ebpf.ProgramSpec {
	if len(c) == 0 {
		return ps
	}
	insns := slices.Clone(ps.Instructions)
	code := newCode(insns)
	var useless []int
	for _, l := range code.loads() {
		ins := &insns[l.index]
		v, ok := c.read(l.from, ins.OpCode.Size(), order)
		if !ok || v > math.MaxUint32 {
			continue
		}
		if last := &insns[max(l.index-1, 0)]; last.IsLoadFromMap() && last.Dst == ins.Src && ins.Dst == ins.Src && code.before[l.index] == nil {
			useless = append(useless, l.index-1)
		}
		*ins = asm.Mov.Imm32(ins.Dst, int32(uint32(v))).WithMetadata(ins.Metadata)
	}
	out := *ps
	out.Instructions = without(insns, useless)
	return &out
}

// read is the number at an address.
func (c constants) read(from address, size asm.Size, order binary.ByteOrder) (uint64, bool) {
	b, n := c[from.section], int64(size.Sizeof())
	if from.section == "" || from.offset < 0 || from.offset+n > int64(len(b)) {
		return 0, false
	}
	b = b[from.offset : from.offset+n]
	switch n {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(order.Uint16(b)), true
	case 4:
		return uint64(order.Uint32(b)), true
	}
	return order.Uint64(b), true
}

// without has jumps to the next instruction in the place of some, which are two words long.
func without(insns asm.Instructions, useless []int) asm.Instructions {
	out := make(asm.Instructions, 0, len(insns)+len(useless))
	for i, ins := range insns {
		if len(useless) == 0 || i != useless[0] {
			out = append(out, ins)
			continue
		}
		useless = useless[1:]
		nothing := asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}
		// Not all metadata: that of a load says which map.
		first := nothing.WithSymbol(ins.Symbol()).WithSource(ins.Source())
		if f := btf.FuncMetadata(&ins); f != nil {
			first = btf.WithFuncMetadata(first, f)
		}
		out = append(out, first, nothing)
	}
	return out
}

// An address is that of a constant; the zero value is anything else.
type address struct {
	section string
	offset  int64
}

// registers are the addresses in all registers.
type registers [asm.RFP + 1]address

// A state is what is known before an instruction, whichever way led to it.
type state struct {
	reached bool
	regs    registers
}

// join adds a way to the instruction. It reports whether less is known now.
func (s *state) join(regs *registers) (changed bool) {
	if !s.reached {
		*s = state{true, *regs}
		return true
	}
	for i := range s.regs {
		if s.regs[i] != regs[i] && s.regs[i] != (address{}) {
			s.regs[i], changed = address{}, true
		}
	}
	return changed
}

// code is a program with its jumps.
type code struct {
	insns  asm.Instructions
	target []int    // of jumps, by index; -1: no jump
	before []*state // of targets
	begins []bool   // a function begins here
}

// A load reads a constant.
type load struct {
	index int
	from  address
}

func newCode(insns asm.Instructions) *code {
	c := &code{insns, make([]int, len(insns)), make([]*state, len(insns)), make([]bool, len(insns))}
	index := make([]int, 0, 2*len(insns)) // by offset: loads of 64 bits take two
	for i := range insns {
		for range insns[i].Width() {
			index = append(index, i)
		}
	}
	offset := 0
	for i := range insns {
		ins := &insns[i]
		offset += int(ins.Width())
		c.target[i], c.begins[i] = -1, ins.Symbol() != ""
		op := ins.OpCode
		if !op.Class().IsJump() || op.JumpOp() == asm.Call || op.JumpOp() == asm.Exit {
			continue
		}
		n := int(ins.Offset)
		if op.JumpOp() == asm.Ja && op.Class() == asm.Jump32Class {
			n = int(ins.Constant)
		}
		c.target[i] = index[offset+n]
		c.before[c.target[i]] = &state{}
	}
	return c
}

// loads is all instructions that read a constant, in their order.
func (c *code) loads() []load {
	for {
		if out, again := c.walk(); !again {
			return out
		}
	}
}

// walk follows the code once. again: a jump back led to an instruction with less known than it had
// when the walk came by.
func (c *code) walk() (out []load, again bool) {
	now := state{reached: true}
	for i := range c.insns {
		ins := &c.insns[i]
		if c.begins[i] {
			now = state{reached: true}
		}
		if at := c.before[i]; at != nil {
			if now.reached {
				at.join(&now.regs)
			}
			now = *at
		}
		if !now.reached {
			continue
		}
		op := ins.OpCode
		if from := now.regs[ins.Src]; from.section != "" && op.Class() == asm.LdXClass && op.Mode() == asm.MemMode {
			from.offset += int64(ins.Offset)
			out = append(out, load{i, from})
		}
		now.regs.after(ins)
		if to := c.target[i]; to >= 0 && c.before[to].join(&now.regs) && to <= i {
			again = true
		}
		now.reached = !op.Class().IsJump() || op.JumpOp() != asm.Ja && op.JumpOp() != asm.Exit
	}
	return out, again
}

// after changes what is known to what is known after an instruction.
func (r *registers) after(ins *asm.Instruction) {
	op, dst := ins.OpCode, &r[ins.Dst]
	switch {
	case ins.IsLoadFromMap():
		*dst = address{ins.Reference(), ins.Constant >> 32}
	case op == asm.Mov.Op(asm.RegSource) && ins.Offset == 0:
		*dst = r[ins.Src]
	case op == asm.Add.Op(asm.ImmSource) && dst.section != "" && btf.CORERelocationMetadata(ins) == nil:
		dst.offset += ins.Constant
	case op.Class().IsJump():
		if op.JumpOp() == asm.Call {
			clear(r[:asm.R6])
		}
	case op.Class() == asm.StXClass:
		if op.Mode() != asm.MemMode { // an atomic operation may return a value
			r[asm.R0], r[ins.Src] = address{}, address{}
		}
	case op.Class() != asm.StClass:
		*dst = address{}
	}
}
