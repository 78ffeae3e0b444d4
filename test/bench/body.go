// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// A block is a part of the work of a least program. The blocks of a program run one after the other and share registers and
// the stack. A block that does not find what it looks for ends the program.
type block func(*body)

// What registers hold between blocks.
const (
	theSocket = asm.R6
	theTime   = asm.R7
	theEntry  = asm.R8 // of the socket, in the table
	theArgs   = asm.R9 // the program's context
)

// What the stack holds. A key is copied there, because a program may not use a pointer as a number again.
const (
	stackKey, stackOld, stackNew, stackSpent = -8, -16, -24, -32
	stackEntry                               = stackSpent - tableValue
)

// An entry of the table of sockets, tableValue bytes: the process as in an event, and two times.
const (
	whoCgroup, whoPID, whoTID, whoUID, whoFlags, whoComm, whoBytes = 0, 8, 12, 16, 20, 24, 40
	entrySince, entryLater                                         = 40, 48
)

// body is the program that blocks make.
type body struct {
	*empty
	code   asm.Instructions
	kernel *btf.Spec
	labels int
	err    error
}

// does makes a program of blocks.
func does(blocks ...block) func(*empty) (asm.Instructions, error) {
	return func(e *empty) (asm.Instructions, error) {
		kernel, err := btf.LoadKernelSpec()
		if err != nil {
			return nil, err
		}
		b := &body{empty: e, kernel: kernel}
		b.do(asm.Mov.Reg(theArgs, asm.R1))
		if !e.syscall {
			b.do(asm.LoadMem(theSocket, theArgs, 0, asm.DWord))
		}
		b.add(blocks)
		b.do(asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
		return b.code, b.err
	}
}

func (b *body) do(more ...asm.Instruction) { b.code = append(b.code, more...) }

func (b *body) add(blocks []block) {
	for _, does := range blocks {
		does(b)
	}
}

// label returns a name of its own for a place in the program.
func (b *body) label() string {
	b.labels++
	return "after" + strings.Repeat("'", b.labels)
}

// here is where a label points to.
func (b *body) here(label string) { b.do(asm.Mov.Imm(asm.R0, 0).WithSymbol(label)) }

// keep returns the first error.
func (b *body) keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

// field is where a struct has a field.
func (b *body) field(name, path string) member {
	var s *btf.Struct
	if err := b.kernel.TypeByName(name, &s); err != nil {
		b.keep(err)
		return member{}
	}
	f, err := fieldOf(s, path)
	b.keep(err)
	return f
}

// load reads a field of the struct that a register points to, as the verifier knows.
func (b *body) load(to, from asm.Register, name, path string) {
	f := b.field(name, path)
	b.do(asm.LoadMem(to, from, f.offset, f.size))
}

// copies copies a field into memory.
func (b *body) copies(to asm.Register, at int16, from asm.Register, name, path string, size asm.Size) {
	b.load(asm.R1, from, name, path)
	b.do(asm.StoreMem(to, at, asm.R1, size))
}

// cast has R0 point to where a register points, as to a struct. The verifier removes the call: it costs nothing.
func (b *body) cast(from asm.Register, name string) {
	var f *btf.Func
	var s *btf.Struct
	b.keep(b.kernel.TypeByName("bpf_rdonly_cast", &f)) // since 6.2
	b.keep(b.kernel.TypeByName(name, &s))
	if b.err != nil {
		return
	}
	call, err := b.kernel.TypeID(f)
	b.keep(err)
	typ, err := b.kernel.TypeID(s)
	b.keep(err)
	b.do(asm.Mov.Reg(asm.R1, from), asm.Mov.Imm(asm.R2, int32(typ)),
		asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: int64(call)})
}

// stackAt has a register point into the stack.
func (b *body) stackAt(r asm.Register, offset int32) {
	b.do(asm.Mov.Reg(r, asm.RFP), asm.Add.Imm(r, offset))
}

// key gives a helper the map, and the socket as the key.
func (b *body) key(m *ebpf.Map) {
	b.do(asm.StoreMem(asm.RFP, stackKey, theSocket, asm.DWord), asm.LoadMapPtr(asm.R1, m.FD()))
	b.stackAt(asm.R2, stackKey)
}
