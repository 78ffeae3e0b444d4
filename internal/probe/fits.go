// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
)

// HasTracepoint fits kernels with a tracepoint of at least n arguments.
func HasTracepoint(name string, n int) func(*Kernel) error {
	return func(k *Kernel) error {
		args := k.Args(name)
		switch {
		case args == nil:
			return fmt.Errorf("%w: no tracepoint %s", ErrNotSupported, name)
		case len(args) < n:
			return fmt.Errorf("%w: tracepoint %s has %d arguments, not %d", ErrNotSupported, name, len(args), n)
		}
		return nil
	}
}

// LacksTaskRegs says whether a point is needed that keeps the arguments of a system call from its
// entry: on this kernel (before 5.15) bpf/sysarg.h does not give them at its exit. For
// [Point.Needed].
func LacksTaskRegs(k *Kernel) bool { return k.Given() || !k.HasFunc("bpf_task_pt_regs") }

// HasUprobes fits kernels with uprobes; instead names the alternative for
// others.
func HasUprobes(instead string) func(*Kernel) error {
	return func(k *Kernel) error {
		if k.stored {
			return nil // BTF does not show it
		}
		if _, err := os.Stat("/sys/bus/event_source/devices/uprobe/type"); err != nil {
			return fmt.Errorf("%w: no uprobes (CONFIG_UPROBE_EVENTS); %s", ErrNotSupported, instead)
		}
		return nil
	}
}

// HasFunctions fits kernels that have all of these functions.
func HasFunctions(names ...string) func(*Kernel) error {
	return func(k *Kernel) error {
		for _, n := range names {
			if !k.HasFunc(n) {
				return fmt.Errorf("%w: no function %s (inlined or gone)", ErrNotSupported, n)
			}
		}
		return nil
	}
}

// HasArgs fits kernels that have all of these functions with n arguments.
func HasArgs(n int, names ...string) func(*Kernel) error {
	return func(k *Kernel) error {
		for _, name := range names {
			params, ok := k.function(name)
			if !ok {
				return fmt.Errorf("%w: no function %s (inlined or gone)", ErrNotSupported, name)
			}
			if len(params) != n {
				return fmt.Errorf("%w: %s does not have %d arguments", ErrNotSupported, name, n)
			}
		}
		return nil
	}
}

// Uring is the point for the programs that URING_COMPLETE(name, …) makes.
func Uring(name, misses string) Point {
	return Point{
		Name: name, Optional: true, Misses: misses,
		Ways: []Way{
			{Name: "btf", Programs: []string{name + "__btf__cqe"}, Fits: UringLayout("cqe")},
			{Name: "btf", Programs: []string{name + "__btf__res"}, Fits: UringLayout("res")},
			{Name: "btf", Programs: []string{name + "__btf__old", name + "__btf__old_submit"}, Fits: UringLayout("old")},
		},
	}
}

// UringLayout decides by the arguments of io_uring_complete: see uring.h. A
// program for the wrong layout loads, and reads garbage.
func UringLayout(want string) func(*Kernel) error {
	return func(k *Kernel) error {
		args := k.Args("io_uring_complete")
		got := "none"
		switch {
		case len(args) == 3 && (args[1].To == "io_kiocb" || args[2].To == "io_uring_cqe"):
			got = "cqe"
		case len(args) >= 4 && args[1].Pointer:
			got = "res"
		case len(args) >= 3 && oldSubmit(k):
			got = "old"
		}
		if got != want {
			return fmt.Errorf("%w: io_uring_complete has another layout (%s)", ErrNotSupported, got)
		}
		return nil
	}
}

// oldSubmit reports whether io_uring_submit_sqe is (ctx, req, opcode,
// user_data, …).
func oldSubmit(k *Kernel) bool {
	args := k.Args("io_uring_submit_sqe")
	return len(args) >= 4 && args[1].Pointer && !args[2].Pointer
}
