// SPDX-License-Identifier: Apache-2.0

// Package job is the protocol between the runner on the host and init in the
// guest: a Job goes in as a file of the initramfs, and marks come back over a
// port.
package job

import (
	"fmt"
	"strconv"
	"strings"
)

// Where things are in the initramfs.
const (
	File    = "/job.json"
	Modules = "/modules" // the .ko files of Job.Modules
	Payload = "/payload" // with Job.Root, what is to be copied into the root
	Home    = "/vm"      // the command's working directory and the first of its PATH
)

// A Job is one boot's work.
type Job struct {
	Args    []string // the command and its arguments
	Env     []string // besides PATH, HOME, LANG and TMPDIR
	Modules []string // file names under Modules, in load order
	Tracefs bool     // mount tracefs and debugfs; the product must cope without
	Root    bool     // the first disk is a Debian root
}

// The ports of the guest, in the order in which qemu has them. The first
// belongs to the kernel's messages and to init's own.
const (
	Console = iota
	Stdout
	Stderr
	Marks
	Ports
)

// Port is the guest's device file of a port.
func Port(n int) string { return fmt.Sprintf("/dev/ttyS%d", n) }

// Started is the mark that init writes when it starts the command.
const Started = "started\n"

// Exited is the mark that init writes when the command is gone and all that it
// wrote has left the guest.
func Exited(code int) string { return fmt.Sprintf("exited %d\n", code) }

// ExitCode finds the exit code among the marks. A mark without its newline does
// not count: the guest may have died while it wrote "exited 12".
func ExitCode(marks string) (code int, ok bool) {
	for line := range strings.Lines(marks) {
		word, found := strings.CutPrefix(line, "exited ")
		word, whole := strings.CutSuffix(word, "\n")
		if !found || !whole {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(word, "\r"), 10, 8)
		if err != nil {
			continue
		}
		return int(n), true
	}
	return 0, false
}
