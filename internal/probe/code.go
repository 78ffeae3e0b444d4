// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"

	"github.com/cilium/ebpf/asm"
)

// code is a program on its way through fold. What it has by instruction is in slices that the next
// program uses again.
type code struct {
	insns  asm.Instructions
	target []int32 // of a jump, or the function of a call; none: neither
	flags  []flags
	word   []int32 // where an instruction is
	states []state // of those with the flag entered, in their order
	entry  []int32 // by instruction: the index of its state
	value  []uint64
	live   []registerSet
	next   []int32 // the next instruction that is kept, or this one
	first  []int32 // the instruction that begins at a word
	named  []named
}

const none = -1

type flags uint8

const (
	entered flags = 1 << iota // a jump leads here, or a function begins here
	begins                    // a function begins here
	loops                     // a jump from here or below leads here
	kept                      // the instruction can be reached and is useful
	sets                      // it sets its register to a number that is known
	fixed                     // its second operand is a number that is known
	taken                     // it is a jump that is always taken
)

// A named reference is from an instruction to a symbol.
type named struct {
	from int32
	name string
}

// sized is s with n zeros.
func sized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// read finds the jumps of a program. It reports whether it knows them all.
func (c *code) read(insns asm.Instructions) bool {
	n := len(insns)
	c.insns, c.named = insns, c.named[:0]
	c.target, c.flags, c.word = sized(c.target, n), sized(c.flags, n), sized(c.word, n+1)
	c.entry, c.value = sized(c.entry, n), sized(c.value, n)
	c.live, c.next = sized(c.live, n+1), sized(c.next, n+1)
	c.place()
	c.flags[0] = begins | entered
	for i := range insns {
		c.target[i] = none
		if !c.aim(i) {
			return false
		}
	}
	if !c.resolve() {
		return false
	}
	c.enter()
	return true
}

// place finds the word of each instruction and the instruction of each word.
func (c *code) place() {
	c.first = c.first[:0]
	for i := range c.insns {
		c.word[i] = int32(len(c.first))
		c.first = append(c.first, int32(i))
		if c.insns[i].Width() == 2 {
			c.first = append(c.first, none)
		}
	}
	c.word[len(c.insns)] = int32(len(c.first))
}

// aim finds the target of a jump.
func (c *code) aim(i int) bool {
	ins := &c.insns[i]
	op := ins.OpCode
	if ins.Dst > asm.RFP || ins.Src > asm.RFP {
		return false
	}
	if ins.IsLoadOfFunctionPointer() {
		return c.name(i)
	}
	if !op.Class().IsJump() {
		return true
	}
	offset := int64(ins.Offset)
	switch op.JumpOp() {
	case asm.Exit:
		return true
	case asm.Call:
		if ins.IsFunctionCall() {
			return c.name(i)
		}
		return op.Source() == asm.ImmSource
	case asm.InvalidJumpOp:
		return false
	case asm.Ja:
		if op.Source() == asm.RegSource { // to an address in a register
			return false
		}
		if op.Class() == asm.Jump32Class {
			offset = ins.Constant
		}
	}
	if offset == -1 && ins.Reference() != "" {
		return c.name(i)
	}
	to := int64(c.word[i]) + 1 + offset
	if to < 0 || to >= int64(len(c.first)) || c.first[to] == none {
		return false
	}
	c.target[i] = c.first[to]
	return true
}

// name notes a reference to a symbol.
func (c *code) name(i int) bool {
	c.named = append(c.named, named{int32(i), c.insns[i].Reference()})
	return true
}

// resolve finds the targets of references to symbols.
func (c *code) resolve() bool {
	if len(c.named) == 0 {
		return true
	}
	symbols := map[string]int32{}
	for i := range c.insns {
		if name := c.insns[i].Symbol(); name != "" {
			symbols[name] = int32(i)
		}
	}
	for _, r := range c.named {
		to, ok := symbols[r.name]
		if !ok {
			return false
		}
		c.target[r.from] = to
		if c.insns[r.from].IsFunctionReference() {
			c.flags[to] |= begins
		}
	}
	return true
}

// enter gives a state to each instruction that jumps and calls lead to.
func (c *code) enter() {
	for i, to := range c.target {
		if to == none {
			continue
		}
		c.flags[to] |= entered
		if int(to) <= i {
			c.flags[to] |= loops
		}
	}
	n := 0
	for i, f := range c.flags {
		c.entry[i] = int32(n)
		if f&entered != 0 {
			n++
		}
	}
	c.states = sized(c.states, n)
}
