// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// LearnVersion lets cilium/ebpf find out the kernel's version, without which it
// loads no kprobe and no uprobe. It reads it from its own memory, which the kernel
// makes root's alone where the binary has capabilities of its own (setcap). Until it
// gives these up no other process of the user may look into it all the same.
func LearnVersion() {
	if on, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || on == 1 {
		return // it can be read whenever it is wanted
	}
	if unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) == nil {
		features.LinuxVersionCode() // which remembers
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
}
