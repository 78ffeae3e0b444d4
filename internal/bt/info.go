// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"seine/internal/host"
)

// Info writes which parts of the language this kernel supports.
func Info(w io.Writer) error {
	k := running()
	_, types := k.types()
	_, events := k.events()
	helper := func(fn asm.BuiltinFunc) error { return features.HaveProgramHelper(ebpf.RawTracepoint, fn) }
	said := func(ok bool) error {
		if ok {
			return nil
		}
		return fmt.Errorf("this kernel has none")
	}
	var err error
	line := func(what string, problem error) {
		text := "yes"
		if problem != nil {
			text = "no: " + strings.ReplaceAll(problem.Error(), "\n", "; ")
		}
		if _, e := fmt.Fprintf(w, "%-42s %s\n", what, text); err == nil {
			err = e
		}
	}
	if _, err := fmt.Fprintf(w, "%-42s %s\n", "kernel", host.KernelVersion()); err != nil {
		return err
	}
	line("types of the kernel (BTF)", types)
	line("tracepoints", events)
	line("kprobe, kretprobe", k.kprobes())
	line("fentry, fexit", k.fentry())
	line("kprobe.multi", said(k.multi()))
	line("attach cookies", said(k.cookies()))
	line("for over maps, len(@map)", k.forEach())
	line("while and for of any number of turns", said(k.loop()))
	line("nsecs(boot)", helper(asm.FnKtimeGetBootNs))
	line("nsecs(tai) by the kernel", helper(asm.FnKtimeGetTaiNs))
	line("pid in PID namespaces", helper(asm.FnGetNsCurrentPidTgid))
	line("signal_thread()", helper(asm.FnSendSignalThread))
	if _, e := fmt.Fprintf(w, "%-42s %s\n", "iterators", strings.Join(k.iterators(), " ")); err == nil {
		err = e
	}
	return err
}
