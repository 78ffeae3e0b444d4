// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

const otherName = "bpftrace"

// first prints a line for a rare system call. The line shows that the script is
// attached, in every interpreter.
const first = `t:syscalls:sys_enter_getppid { printf("up\n"); }`

// toTheEnd prints a line at its end, too.
const toTheEnd = first + ` END { printf("down\n"); }`

// oneLiners are three of the book's one-liners, with typical features: keys, a
// string with a histogram, stacks.
var oneLiners = []struct{ what, text string }{
	{"count by pid and comm", "t:syscalls:sys_enter_connect { @[pid, comm] = count(); }"},
	{"lhist by device", "t:net:netif_receive_skb { @[str(args->name)] = lhist(cpu, 0, 128, 1); }"},
	{"count by kernel stack", "t:net:net_dev_xmit { @[kstack] = count(); }"},
}

// interpreter is a program that runs scripts: seine run or bpftrace.
type interpreter struct{ child }

func newInterpreter(script string, command ...string) *interpreter {
	return &interpreter{child{args: append(command, "-e", script), ready: "up", tty: true}}
}

// start makes the system call until its first line is there.
func (i *interpreter) start() error {
	done := make(chan error, 1)
	go func() { done <- i.child.start() }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(200 * time.Microsecond):
			unix.Getppid()
		}
	}
}

// other is the command of Debian's bpftrace, nil if none works.
func other() []string {
	path, err := exec.LookPath(otherName)
	if err != nil {
		return nil
	}
	i := newInterpreter(first, path)
	if err := i.start(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", otherName, err)
		return nil
	}
	if err := i.stop(); err != nil {
		return nil
	}
	return []string{path}
}

// language measures seine run beside bpftrace.
func language(o *options) ([]figure, error) {
	own, peer := []string{o.seine, "run"}, other()
	up := figure{What: "run: from exec to the first event printed", Unit: "ms", Goal: &goal{Bound: 100, Best: true}}
	ratio := figure{What: "run: the same, beside it", Unit: "ms", Goal: &goal{Bound: 0.2, Ratio: true, Best: true}}
	memory := figure{What: "run: peak resident memory", Unit: "MB"}
	if lab.Emulated() {
		up.Goal = nil
	}
	costs := make([]figure, len(oneLiners))
	for i, l := range oneLiners {
		costs[i] = figure{What: "run: " + l.what + ", BPF per event", Unit: "ns", Goal: &goal{Bound: 1, Ratio: true}}
	}
	if peer != nil {
		for _, f := range []*figure{&ratio, &memory, &costs[0], &costs[1], &costs[2]} {
			f.Beside = otherName
		}
	}
	for range 4*o.rounds + 1 {
		for _, command := range [][]string{own, peer} {
			if command == nil {
				continue
			}
			i := newInterpreter(first, command...)
			var peak float64
			err := beside(i, func() (err error) { peak, err = i.peak(); return err })
			if err != nil {
				return nil, err
			}
			took := i.took.Seconds() * 1000
			if &command[0] == &own[0] {
				// The kernel lets one process at a time change
				// tracepoints. In the best round no other process did.
				up.Own, ratio.Own, memory.Own = append(up.Own, took), append(ratio.Own, took), append(memory.Own, peak/mega)
			} else {
				ratio.Other, memory.Other = append(ratio.Other, took), append(memory.Other, peak/mega)
			}
		}
	}
	if len(ratio.Other) > 0 {
		ratio.Note = fmt.Sprintf("(%s and %s)", number(slices.Min(ratio.Own)), number(slices.Min(ratio.Other)))
	}
	told := figure{What: "run: from Ctrl-C to the whole output", Unit: "ms", Goal: &goal{Bound: 25, Best: true}, Beside: ratio.Beside}
	ended := figure{What: "run: from Ctrl-C to the exit", Unit: "ms", Goal: &goal{Bound: 0.125, Ratio: true, Best: true}, Beside: ratio.Beside}
	closing := figure{What: "run: the same to the exit", Unit: "ms", Beside: "close(2) of a tracepoint"}
	for range 2*o.rounds + 1 {
		took, err := closingTime()
		if err != nil {
			return nil, err
		}
		closing.Other = append(closing.Other, took.Seconds()*1000)
		for _, command := range [][]string{own, peer} {
			if command == nil {
				continue
			}
			i := newInterpreter(toTheEnd, command...)
			i.last = "down"
			if err := beside(i, func() error { return nil }); err != nil {
				return nil, err
			}
			if &command[0] == &own[0] {
				told.Own, ended.Own = append(told.Own, i.told.Seconds()*1000), append(ended.Own, i.ended.Seconds()*1000)
			} else {
				told.Other, ended.Other = append(told.Other, i.told.Seconds()*1000), append(ended.Other, i.ended.Seconds()*1000)
			}
		}
	}
	closing.Own = ended.Own
	for range o.rounds {
		for n, l := range oneLiners {
			script := l.text + "\n" + first
			if peer == nil {
				per, err := perEvent(o, newInterpreter(script, own...))
				if err != nil {
					return nil, err
				}
				costs[n].Own = append(costs[n].Own, per[0])
				continue
			}
			one, err := perEvent(o, newInterpreter(script, own...), newInterpreter(script, peer...))
			if err != nil {
				return nil, err
			}
			two, err := perEvent(o, newInterpreter(script, peer...), newInterpreter(script, own...))
			if err != nil {
				return nil, err
			}
			costs[n].Own = append(costs[n].Own, (one[0]+two[1])/2)
			costs[n].Other = append(costs[n].Other, (one[1]+two[0])/2)
		}
	}
	return append([]figure{up, ratio, memory, told, ended, closing}, costs...), nil
}

// closingTime is how long the kernel takes to take a program off the tracepoint of a system call.
func closingTime() (time.Duration, error) {
	e := &empty{tracepoint: "sys_enter_getppid", syscall: true}
	if err := e.start(); err != nil {
		return 0, err
	}
	began := time.Now()
	err := e.stop()
	return time.Since(began), err
}

// perEvent is the cost of an event in the programs of each, in nanoseconds. All see the
// same events, so other work of the machine affects all alike. The first to run has
// colder caches than the others, so callers change the order.
func perEvent(o *options, all ...*interpreter) (per []float64, err error) {
	var before []cost
	for _, i := range all {
		if err := i.start(); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, i.stop()) }()
	}
	for _, i := range all {
		m, err := i.cost()
		if err != nil {
			return nil, err
		}
		before = append(before, total(m))
	}
	if err := o.someSessions(); err != nil {
		return nil, err
	}
	for n, i := range all {
		m, err := i.cost()
		if err != nil {
			return nil, err
		}
		sum := total(m).minus(before[n])
		per = append(per, sum.ns/max(1, sum.runs))
	}
	return per, nil
}
