// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// LearnVersion lets cilium/ebpf find out the kernel's version, without which it loads neither
// kprobes nor uprobes. It reads the version from its own memory through /proc, which the kernel
// reserves for root if the binary has capabilities of its own (setcap). So the process becomes
// readable for a moment. Other processes of the user still cannot look into it, because it has
// capabilities that they lack.
func LearnVersion() {
	if on, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || on == 1 {
		return // it can be read whenever it is wanted
	}
	if unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) == nil {
		features.LinuxVersionCode() // which remembers
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
}
