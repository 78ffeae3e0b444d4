// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// pidLevels is how many PID namespaces of a process are looked at, from its own
// outwards.
const pidLevels = 8

// taskIDs is what the iterator below writes for each task: its process and thread
// as programs see them, and its ids in its PID namespaces from its own outwards.
type taskIDs struct {
	PID, TGID uint32
	In        [pidLevels]struct{ ID, NS uint32 } // NS is the namespace's inode; 0: none
}

// OuterPIDs gives, for each process of the PID namespace with this inode, the id
// that programs see: the one outside of all namespaces. /proc shows ids from its
// own namespace inwards alone, so a BPF iterator over tasks tells them.
func OuterPIDs(inode uint32) (map[uint32]uint32, error) {
	spec, err := iterateIDs()
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("iterator over tasks: %w", err)
	}
	defer p.Close()
	it, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return nil, fmt.Errorf("iterator over tasks: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("iterator over tasks: %w", err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("iterator over tasks: %w", err)
	}
	out := map[uint32]uint32{}
	for one, rest := (taskIDs{}), bytes.NewReader(all); binary.Read(rest, binary.NativeEndian, &one) == nil; {
		for _, in := range one.In {
			if in.NS == inode && one.PID == one.TGID {
				out[in.ID] = one.TGID
			}
		}
	}
	return out, nil
}

// iterateIDs makes the program. Its offsets are the running kernel's.
func iterateIDs() (*ebpf.ProgramSpec, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var bad error
	at := func(name string, path ...string) int16 {
		off, err := offset(kernel, name, path...)
		if err != nil && bad == nil {
			bad = err
		}
		return int16(off)
	}
	var upid *btf.Struct
	if err := kernel.TypeByName("upid", &upid); err != nil {
		return nil, fmt.Errorf("struct upid: %w", err)
	}
	const (
		ids     = -int16(8 + 8*pidLevels) // a taskIDs on the stack
		pointer = ids - 8                 // what was read last
		level   = ids - 16
	)
	var in asm.Instructions
	// read copies size bytes from what r7 points at, and off behind it, to the stack.
	read := func(to int16, size int32, off int16) {
		in = append(in,
			asm.Mov.Reg(asm.R1, asm.R10), asm.Add.Imm(asm.R1, int32(to)),
			asm.Mov.Imm(asm.R2, size),
			asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, int32(off)),
			asm.FnProbeReadKernel.Call())
	}
	in = append(in,
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, 8, asm.DWord), // the task; none at the end
		asm.JEq.Imm(asm.R7, 0, "end"))
	for at := int16(level); at < 0; at += 4 {
		in = append(in, asm.StoreImm(asm.R10, at, 0, asm.Word))
	}
	read(ids, 4, at("task_struct", "pid"))
	read(ids+4, 4, at("task_struct", "tgid"))
	read(pointer, 8, at("task_struct", "thread_pid"))
	in = append(in, asm.LoadMem(asm.R8, asm.R10, pointer, asm.DWord), asm.Mov.Reg(asm.R7, asm.R8))
	read(level, 4, at("pid", "level"))
	in = append(in, asm.LoadMem(asm.R9, asm.R10, level, asm.Word))
	for i := int16(0); i < pidLevels; i++ {
		slot := ids + 8 + 8*i
		in = append(in,
			asm.Mov.Reg(asm.R7, asm.R9), asm.Mul.Imm(asm.R7, int32(upid.Size)), asm.Add.Reg(asm.R7, asm.R8)) // numbers[level]
		read(slot, 4, at("pid", "numbers")+at("upid", "nr"))
		read(pointer, 8, at("pid", "numbers")+at("upid", "ns"))
		in = append(in, asm.LoadMem(asm.R7, asm.R10, pointer, asm.DWord))
		read(slot+4, 4, at("pid_namespace", "ns", "inum"))
		in = append(in, asm.JEq.Imm(asm.R9, 0, "write"), asm.Sub.Imm(asm.R9, 1))
	}
	in = append(in,
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord).WithSymbol("write"), // meta
		asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),                     // its seq
		asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, int32(ids)),
		asm.Mov.Imm(asm.R3, 8+8*pidLevels),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return())
	return &ebpf.ProgramSpec{
		Name: "outer_pids", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task",
		License: "Dual BSD/GPL", Instructions: in,
	}, bad
}

// offset is where a field lies in a struct of the kernel, in bytes, through
// structs without a name too.
func offset(kernel *btf.Spec, name string, path ...string) (uint32, error) {
	var s *btf.Struct
	if err := kernel.TypeByName(name, &s); err != nil {
		return 0, fmt.Errorf("struct %s: %w", name, err)
	}
	var at uint32
	var t btf.Type = s
	for _, field := range path {
		off, next, ok := member(t, field)
		if !ok {
			return 0, fmt.Errorf("struct %s has no field %s", name, field)
		}
		at, t = at+off, next
	}
	return at, nil
}

func member(t btf.Type, field string) (uint32, btf.Type, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == field {
			return m.Offset.Bytes(), m.Type, true
		}
		if m.Name == "" {
			if off, next, ok := member(m.Type, field); ok {
				return m.Offset.Bytes() + off, next, true
			}
		}
	}
	return 0, nil, false
}
