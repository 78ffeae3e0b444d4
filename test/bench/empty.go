// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"seine/internal/ringbuf"
)

// empty is a program at one tracepoint that does nothing, or only as much as its fields say.
// It shows the least that a tool's program at this tracepoint can cost.
type empty struct {
	tracepoint string
	syscall    bool  // a tracepoint of a system call: these have no BTF
	reads      bool  // reads a word of its first argument's memory
	who        bool  // asks for the process and its name
	clock      bool  // reads the clock
	arrays     int   // looks up so many arrays with a value for each processor
	hashes     int   // looks up so many hashes, and finds an entry
	key        int32 // of the hashes, in bytes; 0: 8
	adds       int16 // adds atomically to so many numbers of each entry
	socket     use   // of the table that all programs of one measurement share
	sends      int16 // sends an event of so many bytes
	does       func(*empty) (asm.Instructions, error)

	table    *ebpf.Map
	times    *ebpf.Map    // of the same measurement: one time of a socket
	heard    func([]byte) // gets each event; nil: nobody does
	heardAll chan struct{}
	prog     *ebpf.Program
	link     link.Link
	maps     []*ebpf.Map
	ring     *ebpf.Map
	read     *ringbuf.Reader
}

// use is what a program does with the table of sockets.
type use int

const (
	finds use = iota + 1 // looks its first argument up
	makes                // and makes an entry if there is none
)

func (e *empty) start() (err error) {
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	does, err := e.program()
	if err != nil {
		return err
	}
	spec := &ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: e.tracepoint, License: "GPL",
		Instructions: does,
	}
	if e.syscall {
		spec.Type, spec.AttachType, spec.AttachTo = ebpf.TracePoint, ebpf.AttachNone, ""
	}
	if e.prog, err = ebpf.NewProgram(spec); err != nil {
		return err
	}
	if e.syscall {
		e.link, err = link.Tracepoint("syscalls", e.tracepoint, e.prog, nil)
	} else {
		e.link, err = link.AttachTracing(link.TracingOptions{Program: e.prog})
	}
	if err != nil {
		e.prog.Close()
	}
	return err
}

// program looks arrays and hashes up with a key of zero. Their entries, keys and buckets are always in the processor's cache.
func (e *empty) program() (does asm.Instructions, err error) {
	if e.does != nil {
		return e.does(e)
	}
	const zero, socket, word, name = -8, -16, -24, -40
	key := cmp.Or(e.key, 8)
	keyAt := int32(zero)
	if key > 8 {
		keyAt = -tableValue - socketRoom - key
	}
	do := func(more ...asm.Instruction) { does = append(does, more...) }
	at := func(r asm.Register, offset int32) {
		do(asm.Mov.Reg(r, asm.RFP), asm.Add.Imm(r, offset))
	}
	do(asm.Mov.Imm(asm.R7, 0), asm.StoreMem(asm.RFP, zero, asm.R7, asm.DWord))
	for at := int32(0); key > 8 && at < key; at += 8 {
		do(asm.StoreMem(asm.RFP, int16(keyAt+at), asm.R7, asm.DWord))
	}
	if e.reads || e.socket != 0 {
		do(asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.StoreMem(asm.RFP, socket, asm.R6, asm.DWord))
	}
	if e.reads {
		at(asm.R1, word)
		do(asm.Mov.Imm(asm.R2, 8), asm.Mov.Reg(asm.R3, asm.R6), asm.FnProbeReadKernel.Call())
	}
	if e.who {
		do(asm.FnGetCurrentPidTgid.Call())
		at(asm.R1, name)
		do(asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call())
	}
	if e.clock {
		do(asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R7, asm.R0))
	}
	for i := range e.arrays + e.hashes {
		spec := &ebpf.MapSpec{Type: ebpf.Hash, KeySize: uint32(key), ValueSize: max(64, 8*uint32(e.adds+1)), MaxEntries: 1 << 10}
		if i < e.arrays {
			spec = &ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 64, MaxEntries: 1}
		}
		m, err := e.newMap(spec)
		if err != nil {
			return nil, err
		}
		if i >= e.arrays {
			if err := m.Put(make([]byte, key), make([]byte, spec.ValueSize)); err != nil {
				return nil, err
			}
		}
		if i < e.arrays {
			do(lookUp(m, zero)...)
		} else {
			do(lookUp(m, keyAt)...)
		}
		do(asm.JEq.Imm(asm.R0, 0, "end"), asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord), asm.Mov.Imm(asm.R1, 1))
		for n := range e.adds {
			do(asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 8*(n+1)))
		}
	}
	switch e.socket {
	case finds, makes:
		do(lookUp(e.table, socket)...)
		if e.socket == makes {
			do(asm.JNE.Imm(asm.R0, 0, "found"), asm.LoadMapPtr(asm.R1, e.table.FD()))
			at(asm.R2, socket)
			at(asm.R3, -tableValue-socketRoom)
			for i := range int16(tableValue / 8) {
				do(asm.StoreMem(asm.RFP, -tableValue-socketRoom+8*i, asm.R7, asm.DWord))
			}
			do(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(), asm.Mov.Imm(asm.R0, 0).WithSymbol("found"))
		}
	}
	if e.sends > 0 {
		if err := e.sendInto(do); err != nil {
			return nil, err
		}
	}
	return append(does, asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return()), nil
}

// An entry of the table of sockets has so many bytes. socketRoom is what else is on the stack.
const tableValue, socketRoom = 64, 48

// listen makes a ring for the events of the program, and a reader that throws away what is in it, unless somebody wants to hear it.
func (e *empty) listen() (*ebpf.Map, error) {
	if e.read != nil {
		return e.ring, nil
	}
	ring, err := e.newMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 8 << 20})
	if err != nil {
		return nil, err
	}
	e.ring = ring
	if e.read, err = ringbuf.NewReader(ring); err != nil {
		return nil, err
	}
	e.heardAll = make(chan struct{})
	go func(r *ringbuf.Reader, all chan struct{}) {
		defer close(all)
		var rec ringbuf.Record
		for err := error(nil); err == nil || errors.Is(err, os.ErrDeadlineExceeded); err = r.ReadInto(&rec) {
			if err == nil && e.heard != nil && rec.RawSample != nil {
				e.heard(rec.RawSample)
			}
			if err != nil || rec.Remaining == 0 {
				r.SetDeadline(time.Now().Add(50 * time.Millisecond))
			}
		}
	}(e.read, e.heardAll)
	return ring, nil
}

// sendInto sends an event.
func (e *empty) sendInto(do func(...asm.Instruction)) error {
	ring, err := e.listen()
	if err != nil {
		return err
	}
	const noWakeUp = 1
	do(asm.LoadMapPtr(asm.R1, ring.FD()), asm.Mov.Imm(asm.R2, int32(e.sends)), asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"))
	for i := range e.sends / 8 {
		do(asm.StoreMem(asm.R0, 8*i, asm.R7, asm.DWord))
	}
	do(asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R2, noWakeUp), asm.FnRingbufSubmit.Call())
	return nil
}

func (e *empty) newMap(spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err == nil {
		e.maps = append(e.maps, m)
	}
	return m, err
}

// release closes what the program has used.
func (e *empty) release() {
	if e.read != nil {
		e.read.Close()
		<-e.heardAll
		e.read = nil
	}
	for _, m := range e.maps {
		m.Close()
	}
	e.maps = nil
}

func (e *empty) cost() (map[string]cost, error) {
	st, err := e.prog.Stats()
	if err != nil {
		return nil, err
	}
	return map[string]cost{"empty": {float64(st.RunCount), float64(st.Runtime)}}, nil
}

func (e *empty) stop() error {
	defer e.release()
	return errors.Join(e.link.Close(), e.prog.Close())
}

// lookUp looks a map up with the key on the stack.
func lookUp(m *ebpf.Map, key int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
	}
}

// onHooks runs a load with empty programs at all of the hooks.
func (o *options) onHooks(hooks []*empty, run func() error, take func(cost)) error {
	table, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: tableValue, MaxEntries: 1 << 16})
	if err != nil {
		return err
	}
	defer table.Close()
	times, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1 << 14})
	if err != nil {
		return err
	}
	defer times.Close()
	for i, h := range hooks {
		h.table, h.times = table, times
		if err := h.start(); err != nil {
			for _, h := range hooks[:i] {
				h.stop()
			}
			if errors.Is(err, btf.ErrNotFound) {
				return nil // no such tracepoint on this kernel
			}
			return fmt.Errorf("a program at %s: %w", h.tracepoint, err)
		}
	}
	err = run()
	var sum cost
	for _, h := range hooks {
		m, e := h.cost()
		err = errors.Join(err, e, h.stop())
		sum.runs += m["empty"].runs
		sum.ns += m["empty"].ns
	}
	take(sum)
	return err
}

// histShards is how many histograms there are for processors to count in.
const histShards = 4

// looking does what any tool must that times each read by connection and counts it in a histogram: it reads the clock, looks
// the socket up among entries as large as those of flows, and then a histogram, and counts in it.
func looking(e *empty) (asm.Instructions, error) { return e.lookingAlso(nil, nil) }

// lookingAlso does something more at first, and with the entry in R0. It may use the registers below R6.
func (e *empty) lookingAlso(first, with asm.Instructions) (does asm.Instructions, err error) {
	entries, err := e.newMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 312, MaxEntries: 1 << 15})
	if err != nil {
		return nil, err
	}
	hists, err := e.newMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 2464, MaxEntries: 1 << 10})
	if err != nil {
		return nil, err
	}
	for i := range uint64(histShards) {
		if err := hists.Put(i, make([]byte, 2464)); err != nil {
			return nil, err
		}
	}
	return slices.Concat(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord),
	}, first, asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, histShards-1),
		asm.StoreMem(asm.RFP, -16, asm.R0, asm.DWord),
	}, lookUp(hists, -16), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.StoreMem(asm.RFP, -8, asm.R6, asm.DWord),
	}, lookUp(entries, -8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, "found"),
		// The first read of the socket. What the new entry has in it does not matter: it is a histogram's memory.
		asm.LoadMapPtr(asm.R1, entries.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Reg(asm.R3, asm.R9),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("end"),
		asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord).WithSymbol("found"),
	}, with, asm.Instructions{
		// How long it was since the last read, and from now on.
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
		asm.Sub.Reg(asm.R7, asm.R8),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
		asm.Add.Imm(asm.R9, 8),
		asm.StoreXAdd(asm.R9, asm.R7, asm.DWord),
		asm.RSh.Imm(asm.R7, 10),
		asm.And.Imm(asm.R7, 31),
		asm.LSh.Imm(asm.R7, 3),
		asm.Add.Imm(asm.R9, 24),
		asm.Add.Reg(asm.R9, asm.R7),
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}), nil
}
