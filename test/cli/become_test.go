// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// Commands of scripts that run another command with fewer rights. Each is a
// process of its own that executes the command.

// nobody COMMAND… runs it without privileges.
func nobody() {
	check(syscall.Setgroups(nil))
	check(syscall.Setgid(65534))
	check(syscall.Setuid(65534))
	become(os.Args[1:])
}

// uncapped CAP,… COMMAND… runs it as root without these capabilities; "all"
// stands for all of them.
func uncapped() {
	runtime.LockOSThread()
	names := strings.Split(os.Args[1], ",")
	for c := range host.Capability(64) {
		if names[0] != "all" && !slices.Contains(names, c.String()) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			check(err)
		}
	}
	become(os.Args[2:])
}

// nobtf COMMAND… runs it where no BTF can be found.
func nobtf() {
	runtime.LockOSThread()
	check(unix.Unshare(unix.CLONE_NEWNS))
	check(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, dir := range []string{"/sys/kernel/btf", "/boot", "/lib/modules", "/usr/lib/modules", "/usr/lib/debug"} {
		if _, err := os.Stat(dir); err == nil {
			check(unix.Mount("none", dir, "tmpfs", 0, ""))
		}
	}
	become(os.Args[1:])
}

// pidns COMMAND… runs it in a PID namespace of its own.
func pidns() {
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	err := c.Run()
	if c.ProcessState == nil {
		check(err)
	}
	os.Exit(c.ProcessState.ExitCode())
}

func become(args []string) {
	path, err := exec.LookPath(args[0])
	check(err)
	check(syscall.Exec(path, args, os.Environ()))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
}
