// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// constants are the sections of constants of an object, with their final values.
type constants struct {
	order    binary.ByteOrder
	sections []section
}

type section struct {
	name string
	data []byte
}

func constantsOf(spec *ebpf.CollectionSpec) constants {
	c := constants{order: spec.ByteOrder}
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".rodata") || len(m.Contents) == 0 {
			continue
		}
		if b, ok := m.Contents[0].Value.([]byte); ok {
			c.sections = append(c.sections, section{name, bytes.Clone(b)})
		}
	}
	slices.SortFunc(c.sections, func(a, b section) int { return cmp.Compare(a.name, b.name) })
	for _, v := range spec.Variables {
		if i := c.find(v.SectionName); i >= 0 {
			copy(c.sections[i].data[v.Offset:], v.Value)
		}
	}
	return c
}

func (c *constants) find(name string) int {
	return slices.IndexFunc(c.sections, func(s section) bool { return s.name == name })
}

// A value is what is known of a register. The zero value says that nothing is.
type value struct {
	kind kind
	n    uint64 // the number, or the offset in the section
}

type kind int

const (
	unknown kind = iota
	number
	address // in the first section of constants; those in the next sections have the kinds that follow
)

// registers are the values of all registers. Nothing is known of R10, which no program changes.
type registers [asm.RFP + 1]value

// after changes what is known to what is known after an instruction.
func (r *registers) after(ins *asm.Instruction, c *constants) {
	op, dst := ins.OpCode, &r[ins.Dst]
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		*dst = r.computed(ins)
	case asm.LdXClass:
		*dst = r.read(ins, c)
	case asm.LdClass:
		if op.IsDWordLoad() {
			*dst = c.loaded(ins)
		} else { // a classic load from a packet, which the kernel replaces by a call
			clear(r[:asm.R6])
		}
	case asm.StXClass:
		if op.Mode() != asm.MemMode { // an atomic operation may return a value in any of these
			r[asm.R0], r[ins.Src], *dst = value{}, value{}, value{}
		}
	case asm.JumpClass, asm.Jump32Class:
		if op.JumpOp() == asm.Call {
			clear(r[:asm.R6])
		}
	}
}

// loaded is the value of an instruction that loads 64 bits from itself.
func (c *constants) loaded(ins *asm.Instruction) value {
	switch {
	case ins.Src == asm.PseudoMapValue:
		if i := c.find(ins.Reference()); i >= 0 {
			return value{address + kind(i), uint64(ins.Constant) >> 32}
		}
	case ins.Src == asm.R0 && ins.Reference() == "" && btf.CORERelocationMetadata(ins) == nil:
		return value{number, uint64(ins.Constant)}
	}
	return value{}
}

// read is the value of an instruction that reads memory.
func (r *registers) read(ins *asm.Instruction, c *constants) value {
	from := r[ins.Src]
	if from.kind < address || ins.OpCode.Mode() != asm.MemMode || btf.CORERelocationMetadata(ins) != nil {
		return value{}
	}
	b, at, n := c.sections[from.kind-address].data, int64(from.n)+int64(ins.Offset), ins.OpCode.Size().Sizeof()
	if at < 0 || at+int64(n) > int64(len(b)) {
		return value{}
	}
	b = b[at:]
	switch n {
	case 1:
		return value{number, uint64(b[0])}
	case 2:
		return value{number, uint64(c.order.Uint16(b))}
	case 4:
		return value{number, uint64(c.order.Uint32(b))}
	}
	return value{number, c.order.Uint64(b)}
}

// operand is the second operand of an instruction that computes or compares.
func (r *registers) operand(ins *asm.Instruction) value {
	if ins.OpCode.Source() == asm.RegSource {
		return r[ins.Src]
	}
	if btf.CORERelocationMetadata(ins) != nil { // until it is loaded the number is that of other kernels
		return value{}
	}
	return value{number, uint64(int64(int32(ins.Constant)))}
}

// computed is the value of an arithmetic instruction.
func (r *registers) computed(ins *asm.Instruction) value {
	op := ins.OpCode.ALUOp()
	if op == asm.Swap || ins.Offset != 0 { // a move with an offset makes an address of another kind
		return value{}
	}
	a, b, wide := r[ins.Dst], r.operand(ins), ins.OpCode.Class() == asm.ALU64Class
	switch {
	case op == asm.Mov && wide:
		return b
	case op == asm.Mov && b.kind == number, a.kind == number && b.kind == number:
		return arithmetic(op, wide, a.n, b.n)
	case a.kind >= address && b.kind == number && wide && op == asm.Add:
		return value{a.kind, a.n + b.n}
	case a.kind >= address && b.kind == number && wide && op == asm.Sub:
		return value{a.kind, a.n - b.n}
	case (op == asm.And || op == asm.Mul) && (a.zero(wide) || b.zero(wide)):
		return value{number, 0}
	}
	return value{}
}

// zero reports whether the bits that an instruction uses are 0.
func (v value) zero(wide bool) bool {
	return v.kind == number && (v.n == 0 || !wide && uint32(v.n) == 0)
}

// arithmetic computes as the processor does: 32 bits if the operation is not wide.
func arithmetic(op asm.ALUOp, wide bool, a, b uint64) value {
	bits := uint64(63)
	if !wide {
		bits, a, b = 31, uint64(uint32(a)), uint64(uint32(b))
	}
	switch op {
	case asm.Mov:
		a = b
	case asm.Add:
		a += b
	case asm.Sub:
		a -= b
	case asm.Mul:
		a *= b
	case asm.Neg:
		a = -a
	case asm.Or:
		a |= b
	case asm.And:
		a &= b
	case asm.Xor:
		a ^= b
	case asm.LSh:
		a <<= b & bits
	case asm.RSh:
		a >>= b & bits
	case asm.ArSh:
		a = uint64(signed(a, wide) >> (b & bits))
	case asm.Div: // by 0 it is 0
		if b != 0 {
			a /= b
		} else {
			a = 0
		}
	case asm.Mod: // by 0 nothing changes
		if b != 0 {
			a %= b
		}
	default: // operations that sign: no kernel before 6.6 has them
		return value{}
	}
	if !wide {
		a = uint64(uint32(a))
	}
	return value{number, a}
}

func signed(n uint64, wide bool) int64 {
	if wide {
		return int64(n)
	}
	return int64(int32(n))
}

// decides reports whether a conditional jump is taken, if that is known.
func (r *registers) decides(ins *asm.Instruction) (taken, known bool) {
	op, wide := ins.OpCode.JumpOp(), ins.OpCode.Class() == asm.JumpClass
	a, b := r[ins.Dst], r.operand(ins)
	switch {
	case a.kind == number && b.kind == number:
		return compare(op, wide, a.n, b.n)
	case b.zero(wide):
		return op == asm.JGE, op == asm.JGE || op == asm.JLT || op == asm.JSet
	case a.zero(wide):
		return op == asm.JLE, op == asm.JLE || op == asm.JGT || op == asm.JSet
	}
	return false, false
}

// compare compares two numbers, or their lower halves if wide is not set.
func compare(op asm.JumpOp, wide bool, a, b uint64) (taken, known bool) {
	if !wide {
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	sa, sb := signed(a, wide), signed(b, wide)
	switch op {
	case asm.JEq:
		return a == b, true
	case asm.JNE:
		return a != b, true
	case asm.JGT:
		return a > b, true
	case asm.JGE:
		return a >= b, true
	case asm.JLT:
		return a < b, true
	case asm.JLE:
		return a <= b, true
	case asm.JSGT:
		return sa > sb, true
	case asm.JSGE:
		return sa >= sb, true
	case asm.JSLT:
		return sa < sb, true
	case asm.JSLE:
		return sa <= sb, true
	case asm.JSet:
		return a&b != 0, true
	}
	return false, false
}
