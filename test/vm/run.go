// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"seine/test/vm/kernel"
)

// A runner runs one command on several kernels.
type runner struct {
	options
	tmp            string
	init           string // the guest's init
	disk           string // with -root: the image
	stdout, stderr *shared
}

// run boots each kernel and returns the first exit code that is not 0.
func run(ctx context.Context, args []string) (int, error) {
	o, err := parseOptions(args)
	if err != nil {
		return 0, err
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp("", "seine-vm-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	r := runner{options: o, tmp: tmp, stdout: &shared{w: os.Stdout}, stderr: &shared{w: os.Stderr}}
	if r.out == "" {
		r.out = tmp
	} else if err := os.MkdirAll(r.out, 0o755); err != nil {
		return 0, err
	}
	if r.init, err = buildInit(ctx, r.arch, tmp); err != nil {
		return 0, err
	}
	if r.root {
		from := plainRoot
		if r.peers {
			from = peersRoot
		}
		if r.disk, err = from.ensure(ctx); err != nil {
			return 0, err
		}
	}
	// All kernels are fetched before the first one boots.
	var kernels []kernel.Kernel
	for _, name := range r.kernels {
		k, err := kernel.Fetch(ctx, name, false, os.Stderr)
		if err != nil {
			return 0, err
		}
		kernels = append(kernels, k)
	}

	codes, errs := make([]int, len(kernels)), make([]error, len(kernels))
	slots := make(chan struct{}, max(1, r.parallel))
	var wait sync.WaitGroup
	for i, k := range kernels {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] == nil {
				codes[i], errs[i] = r.on(ctx, k)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	for _, code := range codes {
		if code != 0 {
			return code, nil
		}
	}
	return 0, nil
}

// on runs the command on one kernel and returns its exit code.
func (r *runner) on(ctx context.Context, k kernel.Kernel) (int, error) {
	started := false
	b := boot{
		machine: machines[r.arch],
		Kernel:  filepath.Join(r.tmp, k.Name+".vmlinux"),
		Initrd:  filepath.Join(r.tmp, k.Name+".initrd"),
		Disk:    r.disk,
		NIC:     r.nic,
		Memory:  r.mem,
		CPUs:    r.cpus,
		Steady:  r.steady,
		Append:  r.append,
		Console: filepath.Join(r.out, k.Name+".console"),
		Started: func(after time.Duration) {
			started = true
			r.say(k, "%s: command started after %.1f s", k.Version, after.Seconds())
		},
	}
	defer os.Remove(b.Kernel)
	defer os.Remove(b.Initrd)
	image, err := k.Vmlinux()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	if err := os.WriteFile(b.Kernel, image, 0o644); err != nil {
		return 0, err
	}
	if err := r.initramfs(b.Initrd, k); err != nil {
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	for _, s := range []struct {
		to   *io.Writer
		via  *shared
		name string
	}{{&b.Stdout, r.stdout, "stdout"}, {&b.Stderr, r.stderr, "stderr"}} {
		f, err := os.Create(filepath.Join(r.out, k.Name+"."+s.name))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		lines := s.via.lines(r.parallel > 1)
		defer lines.Close()
		*s.to = io.MultiWriter(f, lines)
	}

	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	start := time.Now()
	code, ok, err := b.run(limited)
	if err == nil && !ok && !started && limited.Err() == nil {
		r.say(k, "the guest did not come up; another try")
		code, ok, err = b.run(limited)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(b.Console)
	if err != nil {
		return 0, err
	}
	took := time.Since(start).Seconds()
	complaint := complained(text)
	switch {
	case ok:
		r.say(k, "exit code %d after %.1f s", code, took)
		if !complaint {
			return code, nil
		}
		r.say(k, "but the kernel complained:")
	case limited.Err() != nil:
		code = exitTimeout
		r.say(k, "no end after %v; the console:", r.timeout)
	default:
		code = exitNoStatus
		r.say(k, "the guest ended after %.1f s without an exit code; the console:", took)
	}
	_, err = r.stderr.Write(consoleTail(text))
	return code, err
}

// say writes a line of our own about a kernel.
func (r *runner) say(k kernel.Kernel, format string, args ...any) {
	fmt.Fprintf(r.stderr, "vm: %s: %s\n", k.Name, fmt.Sprintf(format, args...))
}
