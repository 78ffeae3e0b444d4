// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// fold returns a program with constants in the place of the loads that read them, and without the
// code that they switch off.
//
// The verifier knows the constants too, and removes the same code. But before that cilium/ebpf has
// relocated it, and the verifier has walked it. And the verifier leaves the loads: 15 bytes of
// machine code and a word of memory each time, and a program that runs often has dozens of them.
//
// A program that fold does not understand remains as it is.
func (c constants) fold(ps *ebpf.ProgramSpec) *ebpf.ProgramSpec {
	p := codes.Get().(*code)
	defer codes.Put(p)
	insns := slices.Clone(ps.Instructions)
	defer func() { p.insns = nil }()
	if len(insns) == 0 || !p.read(insns) {
		return ps
	}
	p.follow(&c)
	p.rewrite()
	p.drop()
	out := *ps
	out.Instructions = p.pack()
	return &out
}

var codes = sync.Pool{New: func() any { return new(code) }}

// pack is the instructions that are kept, with their jumps.
func (c *code) pack() asm.Instructions {
	c.move()
	out := c.insns[:0]
	var head *heading
	for i := range c.insns {
		if !c.reached(i) {
			if c.flags[i]&begins != 0 && c.states[c.entry[i]].reached {
				head = headingOf(&c.insns[i])
			}
			continue
		}
		ins := c.insns[i]
		c.turn(i, &ins)
		if head != nil {
			ins = head.on(ins)
			head = nil
		}
		out = append(out, ins)
	}
	return out
}

// move finds the words that instructions come to. One that goes away gets that of the next.
func (c *code) move() {
	at := int32(0)
	for i := range c.insns {
		c.word[i] = at
		if c.reached(i) {
			at += int32(c.insns[i].Width())
		}
	}
}

// gotol jumps by its constant.
var gotol = asm.OpCode(asm.Jump32Class).SetJumpOp(asm.Ja)

// turn points a jump at the place that its target has come to. A jump to a label becomes one by an
// offset: the label may go away with its instruction.
func (c *code) turn(i int, ins *asm.Instruction) {
	to := c.target[i]
	if to == none || ins.IsFunctionReference() {
		return
	}
	offset := c.word[to] - c.word[i] - 1
	if ins.OpCode == gotol {
		ins.Constant = int64(offset)
	} else {
		ins.Offset = int16(offset)
	}
	if ins.Reference() != "" {
		*ins = ins.WithReference("")
	}
}

// A heading is what the first instruction of a function has.
type heading struct {
	symbol   string
	function *btf.Func
	source   fmt.Stringer
}

func headingOf(ins *asm.Instruction) *heading {
	return &heading{ins.Symbol(), btf.FuncMetadata(ins), ins.Source()}
}

// on is an instruction that begins the function in place of the one that went away. The kernel
// wants a line of source for it, if the program has any.
func (h *heading) on(ins asm.Instruction) asm.Instruction {
	if h.symbol != "" {
		ins = ins.WithSymbol(h.symbol)
	}
	if h.function != nil {
		ins = btf.WithFuncMetadata(ins, h.function)
	}
	if h.source != nil && ins.Source() == nil {
		ins = ins.WithSource(h.source)
	}
	return ins
}
