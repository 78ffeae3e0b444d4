// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	seinehost "seine/internal/host"
)

// Busy keeps the processor busy for each packet of UDP or TCP that a port receives over
// IPv4, in the softirq that receives it. It measures how long that takes.
type Busy struct {
	link link.Link
	prog *ebpf.Program
	took *ebpf.Map // BusyTime
	pile *ebpf.Map // two buffers; one is copied over the other
}

// BusyTime is how often Busy ran, and for how long.
type BusyTime struct {
	Count           uint64
	Total, Max, Min time.Duration
}

// A round copies this many bytes. That takes microseconds, or much of a
// millisecond on an emulated machine.
const busyBytes = 64 << 10

func busyRounds() int {
	if Emulated() {
		return 16
	}
	return 512
}

// StartBusy starts it with a number of rounds for each packet; 0: enough for
// milliseconds. It does not distinguish ports of different namespaces.
func StartBusy(proto, port, rounds int) (*Busy, error) {
	setDefault(&rounds, busyRounds())
	root, err := seinehost.Cgroup2()
	if err != nil {
		return nil, fmt.Errorf("lab: busy: %w", err)
	}
	x := &Busy{}
	x.took, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 32, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("lab: busy: %w", err)
	}
	x.pile, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: busyBytes, MaxEntries: 2})
	if err == nil {
		x.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.CGroupSKB, AttachType: ebpf.AttachCGroupInetIngress, License: "GPL",
			Instructions: busyProgram(proto, port, rounds, x.took.FD(), x.pile.FD()),
		})
	}
	if err == nil {
		x.link, err = link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupInetIngress, Program: x.prog})
	}
	if err != nil {
		x.Close()
		return nil, fmt.Errorf("lab: busy: %w", err)
	}
	return x, nil
}

// Took is the time so far.
func (x *Busy) Took() (t BusyTime, err error) {
	err = x.took.Lookup(uint32(0), &t)
	return t, err
}

// Close ends it.
func (x *Busy) Close() error {
	var errs []error
	if x.link != nil {
		errs = append(errs, x.link.Close())
	}
	if x.prog != nil {
		errs = append(errs, x.prog.Close())
	}
	if x.pile != nil {
		errs = append(errs, x.pile.Close())
	}
	return errors.Join(append(errs, x.took.Close())...)
}

// busyProgram: R6 is the packet, then the buffer that is copied; R7 is the
// start time; R8 is the number of rounds left.
func busyProgram(proto, port, rounds, took, pile int) asm.Instructions {
	load := func(off, size int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, off), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, size), asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "pass"),
		}
	}
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	ins = append(ins, load(0, 1)...)
	ins = append(ins, asm.LoadMem(asm.R1, asm.RFP, -8, asm.Byte), asm.JNE.Imm(asm.R1, 0x45, "pass"))
	ins = append(ins, load(9, 1)...)
	ins = append(ins, asm.LoadMem(asm.R1, asm.RFP, -8, asm.Byte), asm.JNE.Imm(asm.R1, int32(proto), "pass"))
	ins = append(ins, load(22, 2)...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, int32(port), "pass"),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
	)
	ins = append(ins,
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, pile),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.RFP, -8, 1, asm.Word),
		asm.Mov.Imm(asm.R8, int32(rounds)),
		asm.LoadMapPtr(asm.R1, pile).WithSymbol("round"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Sub.Imm(asm.R8, 1),
		asm.JNE.Imm(asm.R8, 0, "round"),
		asm.FnKtimeGetNs.Call(),
		asm.Sub.Reg(asm.R0, asm.R7),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, took),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R0), asm.Add.Imm(asm.R2, 8),
		asm.StoreXAdd(asm.R2, asm.R7, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, 24, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "least"),
		asm.JLE.Reg(asm.R1, asm.R7, "more"),
		asm.StoreMem(asm.R0, 24, asm.R7, asm.DWord).WithSymbol("least"),
		asm.LoadMem(asm.R1, asm.R0, 16, asm.DWord).WithSymbol("more"),
		asm.JGE.Reg(asm.R1, asm.R7, "pass"),
		asm.StoreMem(asm.R0, 16, asm.R7, asm.DWord),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	)
	return ins
}
