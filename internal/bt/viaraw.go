// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Tracepoints through perf events are detached one at a time, and for each the kernel waits until
// no task can be inside it. That takes 50 ms, so a run with hundreds of them would end long after
// Ctrl-C. The kernel does not wait for raw tracepoints, but they do not have the fields. So raw
// tracepoints are used if a clause has many tracepoints and uses none of their fields. All system
// calls share two raw tracepoints, which have the returned value.

// manyProbes is how many tracepoints of a clause are worth it.
var manyProbes = 20

// calls is one program for many system calls.
type calls struct {
	table   string // name of the map with targets
	exit    bool
	status  int               // where a task has the bit of 32-bit calls
	targets [mostCalls]uint32 // by the call's number: the target's and one; 0: none
}

// manyTracepoints says whether raw ones should serve if they can.
func (p *Program) manyTracepoints(targets []*Target) bool {
	n := 0
	for _, t := range targets {
		if t.Way == Tracepoint {
			n++
		}
	}
	return n >= manyProbes
}

// callOf is sys_enter and connect for sys_enter_connect.
func callOf(name string) (point, call string) {
	for _, point := range []string{"sys_enter", "sys_exit"} {
		if call, ok := strings.CutPrefix(name, point+"_"); ok {
			return point, call
		}
	}
	return name, ""
}

// viaRaw traces a target's tracepoint by a raw one, if there is one. If it returns true the target
// has its job.
func (p *Program) viaRaw(cl *Clause, t *Target, byKey map[string]*job) (done bool, err error) {
	if t.Group != "syscalls" {
		var def *btf.Typedef
		if spec, err := p.k.types(); err == nil && !p.c.uses.types && spec.TypeByName("btf_trace_"+t.Name, &def) == nil {
			t.Way = RawTracepoint
		}
		return false, nil
	}
	point, call := callOf(t.Name)
	nr, ok := callNumbers()[call]
	if !ok {
		return false, nil
	}
	j := byKey[point]
	if j == nil {
		status := p.compat()
		if status < 0 {
			return false, nil
		}
		via := &calls{table: fmt.Sprintf("calls%d", len(p.jobs)), exit: point == "sys_exit", status: status}
		code, err := p.u.emit(cl, t, false, via)
		if err != nil {
			return false, err
		}
		j = &job{clause: cl, code: code, key: point, calls: via}
		byKey[point] = j
		p.jobs = append(p.jobs, j)
	}
	t.Way = RawTracepoint
	j.targets = append(j.targets, t)
	j.calls.targets[nr] = uint32(t.ID) + 1
	return true, nil
}

// compat is where a task keeps the bit for system calls of 32-bit programs, which have other
// numbers; less than 0: unknown.
func (p *Program) compat() int {
	var task *btf.Struct
	spec, err := p.k.types()
	if err != nil || spec.TypeByName("task_struct", &task) != nil {
		return -1
	}
	info := findMember(task.Members, "thread_info", InKernel, 0, 0)
	var thread *btf.Struct
	if info == nil || spec.TypeByName("thread_info", &thread) != nil {
		return -1
	}
	status := findMember(thread.Members, "status", InKernel, 0, 0)
	if status == nil {
		return -1
	}
	return info.off + status.off
}

// statusCompat is TS_COMPAT of amd64.
const statusCompat = 2

// dispatch leaves unless the system call is one of the targets, whose number it
// keeps. The context is (registers, number) or (registers, returned value).
func (e *emitter) dispatch() {
	at := loc{asm.RFP, stackKey}
	e.add(asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord))
	if e.calls.exit {
		e.add(asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord), asm.Add.Imm(asm.R3, int32(registers["orig_ax"])))
		e.readTo(at, 8, InKernel)
		e.load(asm.R1, at)
	}
	e.add(
		asm.JGT.Imm(asm.R1, mostCalls-1, "end"),
		asm.LSh.Imm(asm.R1, 2),
		asm.LoadMapValue(asm.R0, 0, 0).WithReference(e.calls.table),
		asm.Add.Reg(asm.R0, asm.R1),
		asm.LoadMem(asm.R0, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Sub.Imm(asm.R0, 1),
	)
	e.store(e.number, asm.R0)
	e.add(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(asm.R3, asm.R0), asm.Add.Imm(asm.R3, int32(e.calls.status)))
	e.readTo(at, 4, InKernel)
	e.add(asm.LoadMem(asm.R0, asm.RFP, stackKey, asm.Word), asm.And.Imm(asm.R0, statusCompat), asm.JNE.Imm(asm.R0, 0, "end"))
}
