// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"seine/test/duckdb"
	"seine/test/programs"
)

// compilers are the programs with which make check compiles the BPF objects.
var compilers = []string{"clang-14", "llvm-14", "clang-format-14", "libbpf-dev"}

// foreign is what links programs for another architecture.
var foreign = []string{"lld-14"}

// others are what single tests use: peers, servers, and programs to check with.
var others = []string{"bpftrace", "cpio", "graphviz", "iproute2", "iputils-ping", "musl", "dnsmasq-base", "gcc", "libc6-dev", "tmux", "chromium", "systemd", "containerd", "runc", "e2fsprogs", "tcpdump", "tshark", "redis-server", "nginx-light", "nghttp2-client", "postgresql"}

// install installs missing Debian packages, and DuckDB.
func install(ctx context.Context) error {
	if err := installPackages(ctx); err != nil {
		return err
	}
	return duckdb.Install(ctx)
}

func installPackages(ctx context.Context) error {
	vm, err := output(ctx, "go", "run", "./test/vm", "packages")
	if err != nil {
		return err
	}
	want := slices.Concat(strings.Fields(vm), compilers, foreign, others)
	if _, err := exec.LookPath("npm"); err != nil { // node from elsewhere brings its own
		want = append(want, "nodejs", "npm")
	}
	want = slices.DeleteFunc(want, func(p string) bool {
		out, err := output(ctx, "dpkg-query", "-W", "-f", "${Status}", p)
		return err == nil && strings.HasSuffix(out, " installed")
	})
	unpacked, err := programs.UnpackedDir()
	if err != nil {
		return err
	}
	_, err = os.Stat(unpacked)
	if len(want) == 0 && err == nil {
		return nil
	}
	if err := quiet(ctx, "apt-get", "-qq", "update"); err != nil {
		return err
	}
	if err != nil {
		if err := unpack(ctx, unpacked); err != nil {
			return err
		}
	}
	if len(want) == 0 {
		return nil
	}
	fmt.Println("installing", strings.Join(want, " "))
	undo, err := startNothing()
	if err != nil {
		return err
	}
	defer undo()
	return quiet(ctx, "apt-get", append([]string{"install", "-qq", "-y", "--no-install-recommends"}, want...)...)
}

// startNothing keeps packages from starting their servers when they are installed, until
// undo is called.
func startNothing() (undo func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	f, err := os.OpenFile(policy, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil // the machine has one of its own
	} else if err != nil {
		return nil, err
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	return func() { os.Remove(policy) }, errors.Join(err, f.Close())
}

// unpack unpacks the packages that must not be installed.
func unpack(ctx context.Context, dir string) error {
	fmt.Println("unpacking", strings.Join(programs.Unpacked, " "))
	tmp, err := os.MkdirTemp("", "unpack")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	get := `cd "$0" && apt-get -qq download "$@" && for p in *.deb; do dpkg -x "$p" root; done`
	if err := quiet(ctx, "sh", append([]string{"-c", get, tmp}, programs.Unpacked...)...); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	return quiet(ctx, "cp", "-r", filepath.Join(tmp, "root"), dir)
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "DEBIAN_FRONTEND=noninteractive")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // a guest ends its machine then
	c.WaitDelay = 20 * time.Second
	return c
}

// output runs a command and returns what it printed.
func output(ctx context.Context, name string, args ...string) (string, error) {
	c := command(ctx, name, args...)
	c.Stderr = os.Stderr
	b, err := c.Output()
	return string(b), err
}

// quiet runs a command and shows what it printed only if it fails.
func quiet(ctx context.Context, name string, args ...string) error {
	b, err := command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(b))
	}
	return nil
}

// stream runs a command whose output goes to w, or to ours if w is nil.
func stream(ctx context.Context, w io.Writer, name string, args ...string) error {
	c := command(ctx, name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stdout
	if w != nil {
		c.Stdout, c.Stderr = w, w
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
