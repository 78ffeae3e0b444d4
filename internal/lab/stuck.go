// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// late is an error of a child that did not do something in time. It says where each of the child's threads is.
func (p *Proc) late(what string) error {
	return fmt.Errorf("%w: %s within %v%s", ErrLate, what, p.timeout, threads(p.PID))
}

// threads says where the threads of a process are, a line for each: name, state, number and arguments of the system call,
// and the kernel's functions from the innermost on, as far as this user may see them.
func threads(pid int) string {
	var out strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(task, name))
			return strings.TrimSpace(string(b))
		}
		stat := read("stat")
		state, _, _ := strings.Cut(strings.TrimSpace(stat[strings.LastIndexByte(stat, ')')+1:]), " ")
		var stack []string
		for line := range strings.Lines(read("stack")) { // [<0>] tcp_recvmsg+0x90/0x1d0
			f := strings.Fields(line)
			name, _, _ := strings.Cut(f[len(f)-1], "+")
			stack = append(stack, name)
		}
		fmt.Fprintf(&out, "\nthread %s (%s), state %s, call %s: %s", filepath.Base(task), read("comm"), state, read("syscall"), strings.Join(stack, " "))
	}
	return out.String()
}
