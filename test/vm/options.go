// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"seine/test/vm/job"
	"seine/test/vm/kernel"
)

// options are the flags of run.
type options struct {
	kernels  []string
	timeout  time.Duration
	mem      string
	cpus     int
	files    []string
	env      []string
	modules  []string
	tracefs  bool
	root     bool
	peers    bool
	nic      bool
	steady   bool
	out      string
	parallel int
	append   string
	command  []string
	arch     string // the command's, once checked
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	split := func(to *[]string) func(string) error {
		return func(s string) error { *to = strings.Split(s, ","); return nil }
	}
	add := func(to *[]string) func(string) error {
		return func(s string) error { *to = append(*to, s); return nil }
	}
	flags.Func("kernels", "`names` of kernels, separated by commas (default all of BINARY's architecture)", split(&o.kernels))
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "`time` for each kernel, boot included; exit code 124 when it is over")
	flags.StringVar(&o.mem, "mem", "2G", "the guest's memory `size`")
	flags.IntVar(&o.cpus, "cpus", 2, "the guest's `number` of processors")
	flags.Func("file", "`HOST[:GUEST]`: a file or directory for the guest, by default in "+job.Home+" (may be repeated)", add(&o.files))
	flags.Func("env", "`NAME=VALUE` for the command (may be repeated)", add(&o.env))
	flags.Func("modules", "`names` of more kernel modules to load, such as mac80211_hwsim, separated by commas", split(&o.modules))
	flags.BoolVar(&o.tracefs, "tracefs", false, "mount tracefs and debugfs")
	flags.BoolVar(&o.root, "root", false, "run inside the Debian root (see vm rootfs); a BINARY without a slash is then one of its commands")
	flags.BoolVar(&o.peers, "peers", false, "as -root, with BCC, bpftrace and the kernels' headers")
	flags.BoolVar(&o.nic, "nic", false, "give the guest a network card (virtio, with its modules) that leads nowhere")
	flags.BoolVar(&o.steady, "steady", false, "let a nanosecond pass with each instruction, so that times do not depend on what else the host does")
	flags.StringVar(&o.out, "out", "", "also write KERNEL.stdout, KERNEL.stderr and KERNEL.console to `dir`")
	flags.IntVar(&o.parallel, "parallel", 1, "`number` of kernels at once; their output is mixed by whole lines")
	flags.StringVar(&o.append, "append", "", "more `words` for the kernel's command line")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: vm run [flags] -- BINARY [ARG...]")
		flags.PrintDefaults()
	}
	if flags.Parse(args) != nil {
		return o, errUsage
	}
	o.root = o.root || o.peers
	if o.command = flags.Args(); len(o.command) == 0 {
		flags.Usage()
		return o, errUsage
	}
	return o, nil
}

// fromGuest reports whether the command is a program of the Debian root.
func (o options) fromGuest() bool { return o.root && !strings.Contains(o.command[0], "/") }

// check finds errors early that would be hard to understand in the guest, and
// uses the command's architecture for the guests.
func (o *options) check() error {
	var err error
	if o.arch, err = o.commandArch(); err != nil {
		return err
	}
	if o.root && o.arch != rootArch {
		return fmt.Errorf("%s is for %s; there is a Debian root for %s alone", o.command[0], o.arch, rootArch)
	}
	if o.steady && o.cpus != 1 {
		return errors.New("-steady is for one processor: -cpus 1")
	}
	if len(o.kernels) == 0 {
		o.kernels = kernel.Names(o.arch)
	}
	for _, name := range o.kernels {
		arch, err := kernel.Arch(name)
		if err != nil {
			return err
		}
		if arch != o.arch {
			return fmt.Errorf("%s is for %s, kernel %s for %s", o.command[0], o.arch, name, arch)
		}
	}
	if _, err := exec.LookPath(machines[o.arch].qemu); err != nil {
		return fmt.Errorf("%w: install what `go run ./test/vm packages` prints", err)
	}
	return nil
}

func (o *options) commandArch() (string, error) {
	if o.fromGuest() {
		return rootArch, nil
	}
	f, err := elf.Open(o.command[0])
	if err != nil {
		if o.root && !errors.Is(err, os.ErrNotExist) {
			return rootArch, nil // a script, perhaps
		}
		return "", fmt.Errorf("%s: %w", o.command[0], err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && !o.root {
			return "", fmt.Errorf("%s is not static: build it with CGO_ENABLED=0, or use -root", o.command[0])
		}
	}
	for arch, m := range machines {
		if m.elf == f.Machine {
			return arch, nil
		}
	}
	return "", fmt.Errorf("%s is for %v, which no kernel here is for", o.command[0], f.Machine)
}
