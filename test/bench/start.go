// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"seine/internal/cli"
	"seine/internal/kbtf"
	"seine/internal/object"
	"seine/internal/probe"
)

// asPreparing has this program prepare a tool, in a process of its own, and say what that took.
const asPreparing = "SEINE_BENCH_PREPARES"

// prepared is what no start of a tool by cilium/ebpf can leave out before the kernel has its programs.
type prepared struct {
	object time.Duration // to unpack and decode it
	types  time.Duration // to read those of the kernel that its programs need
}

// prepare does it with the settings that seine starts with.
func prepare(tool string) error {
	debug.SetGCPercent(cli.StartGC)
	var p prepared
	began := time.Now()
	spec, err := object.Spec(tool)
	if err != nil {
		return err
	}
	p.object = time.Since(began)
	began = time.Now()
	types, err := kbtf.Running()
	if err != nil {
		return err
	}
	if _, err := probe.Offline(types).Part(spec); err != nil {
		return err
	}
	p.types = time.Since(began)
	_, err = fmt.Println(p.object.Nanoseconds(), p.types.Nanoseconds())
	return err
}

// preparing is prepare in a new process.
func preparing(tool string) (p prepared, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), asPreparing+"="+tool)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return p, fmt.Errorf("preparing %s: %w", tool, err)
	}
	_, err = fmt.Sscan(string(out), &p.object, &p.types)
	return p, err
}

// leastStart is how long a start takes at least: the start of the binary, and then the object, the kernel's types and the calls
// of bpf(2), as if all of that could be done by all processors at the same time.
func (o *options) leastStart(tool string) (time.Duration, error) {
	began := time.Now()
	if err := exec.Command(o.seine, "version").Run(); err != nil {
		return 0, err
	}
	version := time.Since(began)
	p, err := preparing(tool)
	if err != nil {
		return 0, err
	}
	kernel, err := bpfTime(filepath.Base(o.seine), func() error { return beside(o.own(tool), func() error { return nil }) })
	if err != nil {
		return 0, err
	}
	if o.each {
		fmt.Fprintf(os.Stderr, "version: %v, the object: %v, types: %v, bpf(2): %v\n", version, p.object, p.types, kernel)
	}
	return version + (p.object+p.types+kernel)/time.Duration(runtime.NumCPU()), nil
}
