// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// findKey leaves 1 in R0 if a map has a key, and the value in a variable.
func (e *emitter) findKey(x *Call) {
	m, v := x.Args[0].(*MapRef), x.Args[2].(*Var)
	d := e.c.maps[m.Name]
	key := e.key(d, m)
	e.lookup(d.name, key)
	no := e.label("notfound")
	e.add(asm.JEq.Imm(asm.R0, 0, no))
	t := e.c.vars[v.Name]
	if t.word() {
		e.loadValue(d)
		e.extend(t)
		e.store(e.vars[v.Name], asm.R0)
	} else {
		e.zero(e.vars[v.Name], t.store())
		e.copyFrom(min(d.value.store(), t.store()), e.vars[v.Name])
	}
	e.add(asm.Mov.Imm(asm.R0, 1))
	e.here(no)
}

// memcmp leaves in R0 the comparison of the first bytes of two values: 0 if they are equal, -1 or
// 1 if the first byte that differs is less or greater.
func (e *emitter) memcmp(x *Call) {
	n, _ := e.c.constant(x.Args[2])
	tx, ty := kept(x.Args[0].typ()), kept(x.Args[1].typ())
	a, b := e.alloc(tx.store()), e.alloc(ty.store())
	e.value(x.Args[0], tx, a)
	e.value(x.Args[1], ty, b)
	differ, end := e.label("differ"), e.label("compared")
	for i := 0; i < int(n); i += 8 {
		e.load(asm.R1, a.at(i))
		e.load(asm.R2, b.at(i))
		// The first byte counts most.
		e.add(asm.HostTo(asm.BE, asm.R1, asm.DWord), asm.HostTo(asm.BE, asm.R2, asm.DWord))
		if left := int(n) - i; left < 8 {
			e.add(asm.RSh.Imm(asm.R1, int32(64-8*left)), asm.RSh.Imm(asm.R2, int32(64-8*left)))
		}
		e.add(asm.JNE.Reg(asm.R1, asm.R2, differ))
	}
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Ja.Label(end))
	e.here(differ)
	e.add(asm.Mov.Imm(asm.R0, -1), asm.JLT.Reg(asm.R1, asm.R2, end), asm.Mov.Imm(asm.R0, 1))
	e.here(end)
}

// percpu leaves in R0 where a CPU has its copy of a variable, 0 if there is no such
// CPU.
func (e *emitter) percpu(x *Call) {
	at := e.slot()
	none := e.label("nocpu")
	if len(x.Args) == 2 {
		e.scalar(x.Args[1])
		e.add(asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R0, 0), asm.JGE.Imm(asm.R1, int32(possibleCPUs()), none), asm.Mov.Reg(asm.R0, asm.R1))
	} else {
		e.add(asm.FnGetSmpProcessorId.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	}
	e.add(
		asm.LSh.Imm(asm.R0, 3), asm.LoadImm(asm.R3, int64(e.c.kernel.percpu("__per_cpu_offset")), asm.DWord), asm.Add.Reg(asm.R3, asm.R0),
	)
	e.readTo(at, 8, InKernel)
	e.load(asm.R0, at)
	e.add(asm.LoadImm(asm.R1, int64(e.c.kernel.percpu(x.Args[0].(*Str).V)), asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
	e.here(none)
}

// debugf writes to the kernel's trace_pipe.
func (e *emitter) debugf(x *Call) {
	format := x.Args[0].(*Str).V
	l := e.alloc(round8(len(format) + 1))
	e.literal(format, round8(len(format)+1), l)
	var args []loc
	for _, a := range x.Args[1:] {
		at := e.slot()
		e.scalar(a)
		e.store(at, asm.R0)
		args = append(args, at)
	}
	e.address(asm.R1, l)
	e.add(asm.Mov.Imm(asm.R2, int32(len(format)+1)))
	for i, at := range args {
		e.load(asm.R3+asm.Register(i), at)
	}
	e.add(asm.FnTracePrintk.Call())
}

// containsValue leaves in R0 where a string has another one in it, -1 if nowhere.
// It compares words at every place, of the second string only the bytes that it has.
func (e *emitter) containsValue(x, part Expr) {
	tx, tp := kept(x.typ()), kept(part.typ())
	room := tx.store()
	n := min(tp.store(), room)
	text, word, mask := e.inScratch(room+n), e.inScratch(tp.store()), e.inScratch(n)
	e.value(x, tx, text)
	e.zero(text.at(room), n)
	e.value(part, tp, word)
	e.zero(mask, n)
	// The mask has all bits of the bytes before the first zero.
	known, end := e.label("mask"), e.label("contained")
	for i := range n {
		e.add(asm.LoadMem(asm.R1, word.reg, int16(word.off+i), asm.Byte), asm.JEq.Imm(asm.R1, 0, known),
			asm.Mov.Imm(asm.R1, 0xff), asm.StoreMem(mask.reg, int16(mask.off+i), asm.R1, asm.Byte))
	}
	e.here(known)
	top, next := e.label("place"), e.label("elsewhere")
	i := e.slot()
	e.zero(i, 8)
	e.here(top)
	e.load(asm.R0, i)
	e.add(asm.JGE.Imm(asm.R0, int32(room), next+"last"))
	e.add(asm.Mov.Reg(asm.R1, text.reg), asm.Add.Reg(asm.R1, asm.R0))
	for j := 0; j < n; j += 8 {
		e.load(asm.R3, mask.at(j))
		e.add(asm.JEq.Imm(asm.R3, 0, end), asm.LoadMem(asm.R2, asm.R1, int16(text.off+j), asm.DWord), asm.And.Reg(asm.R2, asm.R3))
		e.load(asm.R4, word.at(j))
		e.add(asm.And.Reg(asm.R4, asm.R3), asm.JNE.Reg(asm.R2, asm.R4, next))
	}
	e.add(asm.Ja.Label(end))
	e.here(next)
	e.load(asm.R0, i)
	e.add(asm.Add.Imm(asm.R0, 1))
	e.store(i, asm.R0)
	e.add(asm.Ja.Label(top))
	e.here(next + "last")
	e.add(asm.Mov.Imm(asm.R0, -1))
	e.here(end)
}

// frames leaves the number of frames of a stack in R0.
func (e *emitter) frames(t *Type) {
	n := 8 * t.Depth
	buf := e.inScratch(n)
	flags := int32(0)
	if t.Kind == UStack {
		flags = 1 << 8 // BPF_F_USER_STACK
	}
	e.add(asm.Mov.Reg(asm.R1, asm.R6))
	e.address(asm.R2, buf)
	some := e.label("frames")
	e.add(
		asm.Mov.Imm(asm.R3, int32(n)), asm.Mov.Imm(asm.R4, flags), asm.FnGetStack.Call(),
		asm.JSGE.Imm(asm.R0, 0, some), asm.Mov.Imm(asm.R0, 0),
	)
	e.here(some)
	e.add(asm.RSh.Imm(asm.R0, 3))
}

// clock leaves the time of a clock in R0. Where programs cannot read TAI, it is computed from
// another clock.
func (e *emitter) clock(x *Call) {
	name := "boot"
	if len(x.Args) == 1 {
		name = x.Args[0].(*Ident).Name
	}
	switch name {
	case "boot":
		e.add(asm.FnKtimeGetBootNs.Call())
	case "tai":
		if e.c.kernel.tai() {
			e.add(asm.FnKtimeGetTaiNs.Call())
			return
		}
		fallthrough
	case "sw_tai":
		e.add(asm.FnKtimeGetNs.Call(), asm.LoadImm(asm.R1, taiAhead(), asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
	default:
		e.add(asm.FnKtimeGetNs.Call())
	}
}

// taiAhead is how far TAI is ahead of the monotonic clock.
func taiAhead() int64 {
	var a, tai, b unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &a)
	_ = unix.ClockGettime(unix.CLOCK_TAI, &tai)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &b)
	return tai.Nano() - (a.Nano()+b.Nano())/2
}

// processID leaves the number of the process or thread in R0: in our PID namespace,
// or that of the machine.
func (e *emitter) processID(name string, own bool) {
	if ns := e.c.kernel.pidSpace(); ns != nil && own {
		at := e.slot()
		e.add(asm.LoadImm(asm.R1, int64(ns.dev), asm.DWord), asm.LoadImm(asm.R2, int64(ns.ino), asm.DWord))
		e.zero(at, 8)
		e.address(asm.R3, at)
		e.add(asm.Mov.Imm(asm.R4, 8), asm.FnGetNsCurrentPidTgid.Call())
		off := 0 // struct bpf_pidns_info is the thread, then the process
		if name == "pid" {
			off = 4
		}
		e.add(asm.LoadMem(asm.R0, at.reg, int16(at.off+off), asm.Word))
		return
	}
	e.add(asm.FnGetCurrentPidTgid.Call())
	if name == "pid" {
		e.add(asm.RSh.Imm(asm.R0, 32))
	} else {
		e.add(asm.Mov.Reg32(asm.R0, asm.R0))
	}
}

// userMode leaves 1 in R0 if the event came in user mode.
func (e *emitter) userMode() {
	switch e.target.Way {
	case Uprobe, Uretprobe:
		e.add(asm.Mov.Imm(asm.R0, 1))
	case Profile, Software, Hardware, Watch:
		no := e.label("kernelmode")
		e.add(asm.LoadMem(asm.R1, asm.R6, registers["cs"], asm.DWord), asm.Mov.Imm(asm.R0, 0), asm.And.Imm(asm.R1, 3), asm.JEq.Imm(asm.R1, 0, no), asm.Mov.Imm(asm.R0, 1))
		e.here(no)
	default:
		e.add(asm.Mov.Imm(asm.R0, 0))
	}
}

// refuse is fail(): the compilation ends when its code would be emitted.
func (e *emitter) refuse(x *Call) {
	a := &action{format: x.Args[0].(*Str).V}
	a.verbs, _ = parseFormatString(a.format)
	var b strings.Builder
	for i, v := range a.verbs {
		b.WriteString(text(v.before))
		switch arg := x.Args[i+1].(type) {
		case *Str:
			b.WriteString(v.str(arg.V))
		default:
			n, ok := e.c.constant(arg)
			if !ok {
				e.fail(arg, "fail() prints only constants")
			}
			b.WriteString(v.number(n, arg.typ()))
		}
	}
	e.fail(x, "%s", b.String()+text(tail(a.format)))
}

func possibleCPUs() int {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return runtime.NumCPU()
	}
	return n
}
