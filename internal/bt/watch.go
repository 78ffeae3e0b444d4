// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A watchpoint is watchpoint:ADDRESS:LENGTH:MODE: a hardware breakpoint of a process,
// or of the kernel where there is no process.
type watchpoint struct {
	addr, length uint64
	mode         uint32
}

// The access types of a breakpoint, as in linux/hw_breakpoint.h.
const (
	watchR = 1
	watchW = 2
	watchX = 4
)

var watchModes = map[byte]uint32{'r': watchR, 'w': watchW, 'x': watchX}

func (x *expander) watch(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	fail := func(format string, args ...any) ([]*Target, error) {
		return nil, x.src.errorf(ap.pos, ap.end, format, args...)
	}
	if len(parts) != 4 {
		return fail("write a watchpoint as watchpoint:ADDRESS:LENGTH:MODE, as watchpoint:0x10000000:8:w")
	}
	if strings.Contains(parts[1], "+arg") {
		return fail("watchpoints at the arguments of functions are not in the language any more: give an address")
	}
	w := &watchpoint{}
	var err, err2 error
	w.addr, err = strconv.ParseUint(parts[1], 0, 64)
	if err != nil && !isDigit(parts[1][0]) && len(x.watched) == 0 { // a variable of the kernel
		if w.addr = x.k.address(parts[1]); w.addr != 0 {
			err = nil
		}
	}
	w.length, err2 = strconv.ParseUint(parts[2], 0, 8)
	if errors.Join(err, err2) != nil {
		return fail("the address and the length of a watchpoint are numbers")
	}
	if l := w.length; l != 1 && l != 2 && l != 4 && l != 8 {
		return fail("a watchpoint has a length of 1, 2, 4 or 8 bytes")
	}
	if w.addr%w.length != 0 {
		return fail("the address of a watchpoint is a multiple of its length")
	}
	for _, c := range []byte(parts[3]) {
		m, ok := watchModes[c]
		if !ok || w.mode&m != 0 {
			return fail("the mode of a watchpoint is made of r, w and x")
		}
		w.mode |= m
	}
	if w.mode == 0 || w.mode&watchX != 0 && w.mode != watchX {
		return fail("a watchpoint is for x alone, or for r and w")
	}
	if w.mode == watchR {
		w.mode |= watchW // the hardware cannot tell reads alone
		x.note("%s also fires when the memory is written: the processor cannot tell", ap.Raw)
	}
	if len(x.watched) == 0 && w.addr>>63 == 0 {
		return fail("%s is an address of a process: which one, -p or -c says", parts[1])
	}
	t.watch, t.Probe = w, t.Kind.String()+":"+strings.Join(parts[1:], ":")
	return []*Target{&t}, nil
}

// watchEvents opens the breakpoint in all threads of the processes, or on all CPUs.
func (p *Program) watchEvents(prog *ebpf.Program, w *watchpoint) (perfEvent, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bp_type: w.mode, Ext1: w.addr, Ext2: w.length, Sample: 1}
	if w.mode == watchX {
		attr.Ext2 = uint64(unsafe.Sizeof(uintptr(0))) // what the kernel asks for
	}
	var fds perfEvent
	var last error
	open := func(pid, cpu int) {
		fd, err := perfOn(prog, attr, pid, cpu)
		if err != nil {
			last = err
			return
		}
		fds = append(fds, fd)
	}
	pids := p.watched()
	if len(pids) == 0 {
		cpus, err := host.OnlineCPUs()
		if err != nil {
			return nil, err
		}
		for _, cpu := range cpus {
			open(-1, cpu)
		}
	}
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return nil, err
		}
		for _, t := range threads {
			if tid, err := strconv.Atoi(t.Name()); err == nil {
				open(tid, -1)
			}
		}
	}
	if len(fds) == 0 {
		return nil, last
	}
	return fds, nil
}

// watchEvents are the breakpoints of one address, until unwatch() or the end.
type watchEvents struct {
	perfEvent
	addr uint64
	once sync.Once
}

func (w *watchEvents) Close() error {
	w.once.Do(func() { _ = w.perfEvent.Close() })
	return nil
}

// unwatch takes the watchpoints of an address away.
func (a *attached) unwatch(addr uint64) {
	for _, w := range a.watches[addr] {
		_ = w.Close()
	}
}

// watched are the processes whose memory is meant: those of -p, and that of -c.
func (p *Program) watched() []uint32 {
	if p.opts.Child != 0 {
		return append([]uint32{p.opts.Child}, p.opts.PIDs...)
	}
	return p.opts.PIDs
}

// signalled runs programs of self:signal:NAME when the signal comes, until done.
func (a *attached) signalled(done <-chan struct{}, wrong func(error)) {
	got := make(chan os.Signal, 16)
	for s := range a.signals {
		signal.Notify(got, s)
	}
	defer signal.Stop(got)
	for {
		select {
		case <-done:
			return
		case s := <-got:
			for _, prog := range a.signals[s.(unix.Signal)] {
				if err := trigger(prog); err != nil {
					wrong(err)
					return
				}
			}
		}
	}
}

// self is self:signal:SIGUSR1.
func (x *expander) self(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	if len(parts) != 3 || parts[1] != "signal" {
		return nil, x.src.errorf(ap.pos, ap.end, "write it as self:signal:SIGUSR1")
	}
	t.signal = unix.SignalNum(parts[2])
	if t.signal == 0 || t.signal == unix.SIGKILL || t.signal == unix.SIGSTOP || t.signal == unix.SIGINT || t.signal == unix.SIGTERM {
		return nil, x.src.errorf(ap.pos, ap.end, "%s is not a signal that a script can wait for", parts[2])
	}
	t.Probe = t.Kind.String() + ":signal:" + parts[2]
	return []*Target{&t}, nil
}
