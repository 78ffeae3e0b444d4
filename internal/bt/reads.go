// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// readNames are the helpers that read memory, by bpftrace's names.
var readNames = map[asm.BuiltinFunc]string{
	asm.FnProbeReadKernel: "probe_read_kernel", asm.FnProbeReadUser: "probe_read_user",
	asm.FnProbeReadKernelStr: "probe_read_kernel_str", asm.FnProbeReadUserStr: "probe_read_user_str",
}

// read calls a helper that reads memory. With -k an error of the kernel is reported.
func (e *emitter) read(fn asm.BuiltinFunc) {
	e.add(fn.Call())
	if !e.u.reads {
		return
	}
	f := e.enter()
	defer e.leave(f)
	key := fmt.Sprintf("read %d %d %s", e.span[0], e.span[1], readNames[fn])
	id, ok := e.u.known[key]
	if !ok {
		id = len(e.u.actions)
		e.u.known[key] = id
		e.u.actions = append(e.u.actions, &action{kind: "read", format: readNames[fn], at: e.span, types: []*Type{typeS64}})
	}
	answer, rec, fine := e.slot(), e.alloc(recordHead+8), e.label("fine")
	e.store(answer, asm.R0)
	e.add(asm.JSGE.Imm(asm.R0, 0, fine))
	e.store(rec.at(recordHead), asm.R0)
	e.output(id, rec, recordHead+8)
	e.here(fine)
	e.load(asm.R0, answer)
}

// readMost is how often a place is named whose reads fail.
const readMost = 10

// readFailed reports a read that failed.
func (r *Run) readFailed(ev *Event) {
	n := r.failed[ev.a]
	if n++; n > readMost {
		return
	}
	if r.failed == nil {
		r.failed = map[*action]int{}
	}
	r.failed[ev.a] = n
	src := r.p.Script.Src
	line, col := src.Position(ev.a.at[0])
	code := int64(word(ev.data))
	r.p.opts.note("%s:%d:%d: warning: %s failed: %s (%d)", src.part(ev.a.at[0]).name, line, col, ev.a.format, unix.Errno(-code).Error(), code)
	if n == readMost {
		r.p.opts.note("%s:%d:%d: more of these are not told", src.part(ev.a.at[0]).name, line, col)
	}
}
