// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// strangers finds the processes that cannot have made the traffic of a world.
type strangers struct {
	since int // the last PID that was assigned before the world was made
	hosts []uint32
}

// is reports whether a process that the lab did not start is a stranger. A process that
// is older than the world is. A newer one may be a child of the lab's processes if it is
// in one of the world's namespaces. Nothing is known about a process that has ended.
func (s *strangers) is(pid int) bool {
	if pid == os.Getpid() { // the lab's threads are its own
		return false
	}
	if now := lastPID(); s.since > 0 && now >= s.since && pid <= s.since {
		return true
	}
	netns, err := netnsOf(pid)
	return err == nil && !slices.Contains(s.hosts, netns)
}

// lastPID is the PID that was assigned last; 0 if it is not known.
func lastPID() (pid int) {
	text, _ := os.ReadFile("/proc/loadavg")
	if words := strings.Fields(string(text)); len(words) == 5 {
		fmt.Sscan(words[4], &pid)
	}
	return pid
}

func netnsOf(pid int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st)
	return uint32(st.Ino), err
}
