// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A registerSet has a bit for each register.
type registerSet uint16

func of(r asm.Register) registerSet { return 1 << r }

const returned registerSet = 1 << asm.R0

// arguments is the registers with the first n arguments of a call.
func arguments(n int) registerSet { return 1<<(n+1) - 2 }

const maxArguments = 5

// takes is how many arguments the helpers take that are called most. Any other helper is taken to
// read all five registers.
var takes = map[asm.BuiltinFunc]int{
	asm.FnGetCurrentCgroupId: 0,
	asm.FnGetCurrentPidTgid:  0,
	asm.FnGetCurrentTask:     0,
	asm.FnGetCurrentTaskBtf:  0,
	asm.FnGetCurrentUidGid:   0,
	asm.FnGetSmpProcessorId:  0,
	asm.FnJiffies64:          0,
	asm.FnKtimeGetNs:         0,
	asm.FnMapDeleteElem:      2,
	asm.FnMapLookupElem:      2,
	asm.FnMapUpdateElem:      4,
	asm.FnProbeReadKernel:    3,
	asm.FnProbeReadKernelStr: 3,
	asm.FnProbeReadUser:      3,
	asm.FnRingbufQuery:       2,
	asm.FnRingbufReserve:     3,
	asm.FnRingbufSubmit:      2,
}

// passed is the registers that a call reads. The verifier may want each parameter that the type of a
// function has.
func (c *code) passed(i int) registerSet {
	ins := &c.insns[i]
	if to := c.target[i]; to != none {
		if f := btf.FuncMetadata(&c.insns[to]); f != nil {
			if p, ok := f.Type.(*btf.FuncProto); ok {
				return arguments(min(len(p.Params), maxArguments))
			}
		}
	}
	if ins.IsBuiltinCall() {
		if n, ok := takes[asm.BuiltinFunc(ins.Constant)]; ok {
			return arguments(n)
		}
	}
	return arguments(maxArguments)
}

// drop gives up the instructions that set registers which nobody reads, and jumps to where the
// program goes anyway. It begins with the assumption that nobody reads anything above a jump back,
// and starts again until that is true.
func (c *code) drop() {
	for again := true; again; {
		again = c.sweep()
	}
	for i := range c.insns {
		if int(c.next[i]) != i {
			c.flags[i] &^= kept
		}
	}
}

// sweep goes through the code once, from the end. It reports whether a register turned out to be
// read behind a jump back that was assumed not to be.
func (c *code) sweep() (again bool) {
	n := len(c.insns)
	c.next[n] = int32(n)
	now := registerSet(0)
	for i := n - 1; i >= 0; i-- {
		c.next[i] = c.next[i+1]
		if c.reached(i) {
			useful := false
			now, useful = c.before(i, now)
			if useful {
				c.next[i] = int32(i)
			}
		}
		again = again || c.flags[i]&loops != 0 && now != c.live[i]
		c.live[i] = now
	}
	return again
}

func (c *code) reached(i int) bool { return c.flags[i]&kept != 0 }

// before is the registers that are read from an instruction on, given those that are read after it,
// and whether the instruction is useful.
func (c *code) before(i int, after registerSet) (now registerSet, useful bool) {
	ins := &c.insns[i]
	op := ins.OpCode
	switch {
	case op.JumpOp() == asm.Call:
		return after&^(arguments(maxArguments)|returned) | c.passed(i), true
	case op.Class().IsJump():
		return c.beforeJump(i, after)
	}
	reads, writes, pure := effects(ins)
	if pure && after&writes == 0 {
		return after, false
	}
	return after&^writes | reads, true
}

func (c *code) beforeJump(i int, after registerSet) (now registerSet, useful bool) {
	ins, to := &c.insns[i], c.target[i]
	op := ins.OpCode
	if op.JumpOp() == asm.Exit {
		return returned, true
	}
	now = c.live[to]
	if op.JumpOp() != asm.Ja {
		now |= after
	}
	if int(to) > i && c.next[to] == c.next[i+1] && op.JumpOp() != asm.JCOND {
		return now, false
	}
	if op.JumpOp() != asm.Ja {
		now |= operands(ins)
	}
	return now, true
}

// operands is the registers that a computation or a comparison reads.
func operands(ins *asm.Instruction) registerSet {
	if ins.OpCode.Source() == asm.RegSource {
		return of(ins.Dst) | of(ins.Src)
	}
	return of(ins.Dst)
}

// effects is what an instruction reads and writes. One that is pure does nothing else.
func effects(ins *asm.Instruction) (reads, writes registerSet, pure bool) {
	op := ins.OpCode
	switch op.Class() {
	case asm.ALUClass, asm.ALU64Class:
		reads = operands(ins)
		if op.ALUOp() == asm.Mov {
			reads = 0
			if op.Source() == asm.RegSource {
				reads = of(ins.Src)
			}
		}
		return reads, of(ins.Dst), true
	case asm.LdXClass:
		return of(ins.Src), of(ins.Dst), true
	case asm.LdClass:
		if op.IsDWordLoad() {
			// A function that nobody points to would have to go too.
			return 0, of(ins.Dst), ins.Src != asm.PseudoFunc
		}
	case asm.StClass:
		return of(ins.Dst), 0, false
	case asm.StXClass:
		return of(ins.Dst) | of(ins.Src) | returned, 0, false // R0: a compare-and-exchange reads it
	}
	return ^registerSet(0), 0, false
}
