// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

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
		if s.regs[i] != regs[i] && s.regs[i].kind != unknown {
			s.regs[i], changed = value{}, true
		}
	}
	return changed
}

// follow finds the instructions that can be reached, and what is known when they run. It begins
// with the assumption that jumps back lead nowhere, and follows the code again from where one led
// to with less known than was assumed.
func (c *code) follow(k *constants) {
	c.states[0].reached = true
	for from := 0; from != none; {
		from = c.walk(from, k)
	}
}

// walk follows the code once from an instruction. It returns the first one before which less is
// known than when the walk came by.
func (c *code) walk(from int, k *constants) (again int) {
	again = none
	var now state
	for i := from; i < len(c.insns); i++ {
		if c.flags[i]&entered != 0 {
			at := &c.states[c.entry[i]]
			if now.reached && c.flags[i]&begins == 0 {
				at.join(&now.regs)
			}
			now = *at
		}
		if !now.reached {
			continue
		}
		if c.step(i, &now, k) && (again == none || int(c.target[i]) < again) {
			again = int(c.target[i])
		}
	}
	return again
}

// step follows one instruction. It reports whether less is known now before an instruction above.
func (c *code) step(i int, now *state, k *constants) (again bool) {
	ins := &c.insns[i]
	op := ins.OpCode
	c.flags[i] = c.flags[i]&^(sets|fixed|taken) | kept
	if !op.Class().IsJump() {
		c.note(i, &now.regs)
		now.regs.after(ins, k)
		if v := now.regs[ins.Dst]; v.kind == number && computes(ins) {
			c.flags[i], c.value[i] = c.flags[i]|sets, v.n
		}
		return c.target[i] != none && c.reach(i, &registers{})
	}
	switch op.JumpOp() {
	case asm.Exit:
		now.reached = false
	case asm.Call:
		now.regs.after(ins, k)
		return c.target[i] != none && c.reach(i, &registers{})
	case asm.Ja:
		now.reached = false
		return c.reach(i, &now.regs)
	default:
		return c.branch(i, now)
	}
	return false
}

// branch follows the sides of a conditional jump that can be reached.
func (c *code) branch(i int, now *state) (again bool) {
	ins := &c.insns[i]
	switch yes, known := now.regs.decides(ins); {
	case known && !yes:
		c.flags[i] &^= kept
		return false
	case known:
		c.flags[i] |= taken
		now.reached = false
		return c.reach(i, &now.regs)
	}
	c.note(i, &now.regs)
	side := now.regs
	switch ins.OpCode {
	case asm.JEq.Op(asm.ImmSource), asm.JEq.Op(asm.RegSource):
		side.equal(ins)
	case asm.JNE.Op(asm.ImmSource), asm.JNE.Op(asm.RegSource):
		now.regs.equal(ins)
	}
	return c.reach(i, &side)
}

// equal takes note that the operands of a comparison are equal.
func (r *registers) equal(ins *asm.Instruction) {
	if b := r.operand(ins); b.kind == number && r[ins.Dst].kind == unknown {
		r[ins.Dst] = b
	}
}

// reach joins what is known to the target of an instruction.
func (c *code) reach(i int, regs *registers) (again bool) {
	to := c.target[i]
	return c.states[c.entry[to]].join(regs) && int(to) <= i
}

// note keeps the second operand of an instruction if it is a register with a known number.
func (c *code) note(i int, r *registers) {
	ins := &c.insns[i]
	if ins.OpCode.Source() != asm.RegSource || !takesNumber(ins.OpCode) {
		return
	}
	if v := r[ins.Src]; v.kind == number {
		c.flags[i], c.value[i] = c.flags[i]|fixed, v.n
	}
}

// takesNumber reports whether an instruction does the same with a number in place of a register.
// A division by 0 is refused, and so is a shift by more bits than there are.
func takesNumber(op asm.OpCode) bool {
	if op.Class().IsJump() {
		return op.JumpOp() != asm.JCOND
	}
	switch op.ALUOp() {
	case asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor:
		return true
	}
	return false
}

// computes reports whether an instruction only sets its register, to a value that it does not name.
func computes(ins *asm.Instruction) bool {
	op := ins.OpCode
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		return op.ALUOp() != asm.Mov || op.Source() != asm.ImmSource
	case asm.LdXClass:
		return true
	}
	return op.IsDWordLoad()
}

// rewrite puts what is known into the instructions.
func (c *code) rewrite() {
	for i := range c.insns {
		ins := &c.insns[i]
		f, n := c.flags[i], c.value[i]
		switch {
		case f&kept == 0:
		case f&taken != 0:
			*ins = asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Metadata: ins.Metadata}
		case f&sets != 0:
			set(ins, n)
		case f&fixed != 0:
			fix(ins, n)
		}
	}
}

// set makes an instruction one that sets its register to a number, if one word is enough for that.
func set(ins *asm.Instruction, n uint64) {
	switch {
	case n <= math.MaxUint32:
		*ins = asm.Mov.Imm32(ins.Dst, int32(uint32(n))).WithMetadata(ins.Metadata)
	case int64(n) == int64(int32(n)):
		*ins = asm.Mov.Imm(ins.Dst, int32(n)).WithMetadata(ins.Metadata)
	}
}

// fix makes a number the second operand of an instruction, if it has room for it.
func fix(ins *asm.Instruction, n uint64) {
	switch ins.OpCode.Class() {
	case asm.ALU64Class, asm.JumpClass:
		if int64(n) != int64(int32(n)) {
			return
		}
	}
	ins.OpCode, ins.Src, ins.Constant = ins.OpCode.SetSource(asm.ImmSource), asm.R0, int64(int32(n))
}
