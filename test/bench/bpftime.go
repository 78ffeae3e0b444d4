// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// bpfTime is how long the kernel takes for the bpf(2) calls of all processes of a name while f runs. Calls of several
// threads at the same time are added up.
func bpfTime(name string, f func() error) (_ time.Duration, err error) {
	began, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1 << 10}) // by thread
	if err != nil {
		return 0, err
	}
	defer began.Close()
	sum, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return 0, err
	}
	defer sum.Close()
	const thread, now, comm = -8, -16, -32
	at := func(r asm.Register, offset int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(r, asm.RFP), asm.Add.Imm(r, offset)}
	}
	asks := asm.Instructions{asm.FnGetCurrentPidTgid.Call(), asm.StoreMem(asm.RFP, thread, asm.R0, asm.DWord)}
	end := asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return()}
	var word [8]byte
	copy(word[:7], name)
	var wanted int64
	for i, b := range word {
		wanted |= int64(b) << (8 * i)
	}
	enter := slices.Concat(
		asm.Instructions{asm.LoadMem(asm.R1, asm.R1, 8, asm.DWord), asm.JNE.Imm(asm.R1, unix.SYS_BPF, "end")},
		at(asm.R1, comm), asm.Instructions{
			asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call(),
			asm.LoadMem(asm.R1, asm.RFP, comm, asm.DWord), asm.LoadImm(asm.R2, wanted, asm.DWord), asm.JNE.Reg(asm.R1, asm.R2, "end")},
		asks, asm.Instructions{asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, now, asm.R0, asm.DWord), asm.LoadMapPtr(asm.R1, began.FD())},
		at(asm.R2, thread), at(asm.R3, now), asm.Instructions{asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call()}, end)
	exit := slices.Concat(asks, lookUp(began, thread), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "end"), asm.LoadMem(asm.R6, asm.R0, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(), asm.Sub.Reg(asm.R0, asm.R6), asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMapPtr(asm.R1, began.FD())}, at(asm.R2, thread), asm.Instructions{asm.FnMapDeleteElem.Call(),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.RFP, now, asm.R1, asm.DWord)}, lookUp(sum, now), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "end"), asm.StoreXAdd(asm.R0, asm.R6, asm.DWord)}, end)
	for _, e := range []*empty{
		{tracepoint: "sys_exit", does: func(*empty) (asm.Instructions, error) { return exit, nil }},
		{tracepoint: "sys_enter", does: func(*empty) (asm.Instructions, error) { return enter, nil }},
	} {
		if err := e.start(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, e.stop()) }()
	}
	if err := f(); err != nil {
		return 0, err
	}
	var each []uint64
	if err := sum.Lookup(uint32(0), &each); err != nil {
		return 0, err
	}
	var ns uint64
	for _, n := range each {
		ns += n
	}
	return time.Duration(ns), nil
}
