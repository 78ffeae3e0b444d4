// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"seine/internal/probe"
)

// With Options.Children a run has the processes of -p, their children, and those
// that they start meanwhile. A map has them all; a program at sched_process_fork adds
// to it.

// mapFamily has the processes of a run with children.
const mapFamily = "family"

// familyMost is how many processes a run can have.
const familyMost = 16384

// inFamily goes to mine if the process, whose id is in R0, is one of the run.
func (e *emitter) inFamily(mine string) {
	e.add(asm.StoreMem(asm.RFP, stackKey, asm.R0, asm.DWord))
	e.mapPtr(asm.R1, mapFamily)
	e.add(asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey), asm.FnMapLookupElem.Call(), asm.JNE.Imm(asm.R0, 0, mine))
}

// descendants are processes and all their children that there are now.
func descendants(pids []uint32) []uint32 {
	children := map[uint32][]uint32{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
		fields := strings.Fields(rest)
		pid, err := strconv.ParseUint(filepath.Base(filepath.Dir(f)), 10, 32)
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.ParseUint(fields[1], 10, 32); err == nil {
			children[uint32(parent)] = append(children[uint32(parent)], uint32(pid))
		}
	}
	var all []uint32
	seen := map[uint32]bool{}
	for todo := pids; len(todo) > 0; todo = todo[1:] {
		if pid := todo[0]; !seen[pid] {
			seen[pid] = true
			all = append(all, pid)
			todo = append(todo, children[pid]...)
		}
	}
	return all
}

// followForks adds the processes that those of the run start.
func (p *Program) followForks(l *loaded) (io.Closer, error) {
	var task *btf.Struct
	spec, err := p.k.types()
	if err != nil {
		return nil, err
	}
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return nil, err
	}
	tgid := findMember(task.Members, "tgid", InKernel, 0, 0)
	if tgid == nil {
		return nil, fmt.Errorf("%w: struct task_struct is not as expected", probe.ErrNotSupported)
	}
	// The arguments are the parent and the child.
	read := func(arg int16, at int16) asm.Instructions {
		return asm.Instructions{
			storeImm(asm.RFP, int(at), 0),
			asm.LoadMem(asm.R3, asm.R6, 8*arg, asm.DWord), asm.Add.Imm(asm.R3, int32(tgid.off)),
			asm.Mov.Imm(asm.R2, 4), asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(at)), asm.FnProbeReadKernel.Call(),
		}
	}
	ins := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, read(0, -8)...)
	ins = append(ins,
		asm.LoadMapPtr(asm.R1, l.maps[mapFamily].FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
	)
	ins = append(ins, read(1, -16)...)
	ins = append(ins,
		storeImm(asm.RFP, -24, 1),
		asm.LoadMapPtr(asm.R1, l.maps[mapFamily].FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -24), asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMapValue(asm.R1, l.maps[mapCounts].FD(), 8*lostUpdates), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
	)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "seine_family", Type: ebpf.RawTracepoint, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, fmt.Errorf("following new processes: %w", err)
	}
	at, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_fork", Program: prog})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("following new processes: %w", err), prog.Close())
	}
	for _, pid := range descendants(p.opts.PIDs) { // those that came meanwhile
		if err := l.maps[mapFamily].Put(uint64(pid), uint64(1)); err != nil {
			return nil, errors.Join(fmt.Errorf("the processes of -p: %w", err), at.Close(), prog.Close())
		}
	}
	return closers{at, prog}, nil
}

type closers []io.Closer

func (c closers) Close() (err error) {
	for _, x := range c {
		err = errors.Join(err, x.Close())
	}
	return err
}
