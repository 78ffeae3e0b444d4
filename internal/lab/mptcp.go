// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MPTCPSupported tells whether sessions over MPTCP4 and MPTCP6 can be made in a
// world: nil, or ErrNotSupported with the reason. (A new namespace has
// net.mptcp.enabled set.)
func MPTCPSupported() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil {
		return unix.Close(fd)
	}
	if err != unix.ENOPROTOOPT { // what a namespace where it is switched off says
		return unsupported("mptcp", err)
	}
	b, rerr := os.ReadFile("/proc/sys/net/mptcp/enabled")
	if rerr != nil || strings.TrimSpace(string(b)) != "0" {
		return fmt.Errorf("mptcp: %w", err)
	}
	return nil
}
