// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"seine/test/vm/job"
)

// prepare does what a distribution's init does before a login, as far as it
// matters to network tools.
func prepare() error {
	// Programs that look for these expect links, which devtmpfs does not make.
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2",
	} {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_MEMLOCK: unix.RLIM_INFINITY, // BPF maps count against it until 5.11
		unix.RLIMIT_NOFILE:  1 << 20,            // the kernel's fs.nr_open
		unix.RLIMIT_NPROC:   unix.RLIM_INFINITY,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("raise limit %d: %w", resource, err)
		}
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

func loadModule(name string) error {
	f, err := os.Open(path.Join(job.Modules, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", name, err)
	}
	return nil
}
