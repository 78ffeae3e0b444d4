// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MPTCPSupported returns nil if sessions over MPTCP4 and MPTCP6 can be made in
// a world, else ErrNotSupported with the reason. (A new namespace has
// net.mptcp.enabled set.)
func MPTCPSupported() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil {
		return unix.Close(fd)
	}
	if err != unix.ENOPROTOOPT { // the error in a namespace where it is switched off
		return unsupported("mptcp", err)
	}
	b, rerr := os.ReadFile("/proc/sys/net/mptcp/enabled")
	if rerr != nil || strings.TrimSpace(string(b)) != "0" {
		return fmt.Errorf("mptcp: %w", err)
	}
	return nil
}

// What the path manager is told: MPTCP_PM_* of linux/mptcp_pm.h.
const (
	pmAddAddr   = 1
	pmSetLimits = 5

	pmAttrAddr     = 1
	pmAttrAdded    = 2
	pmAttrSubflows = 3

	pmAddrFamily = 1
	pmAddr4      = 3
	pmAddrFlags  = 6

	pmFlagSubflow = 1 << 1
)

// Subflow makes each MPTCP connection of a host to another one also use a
// second address of the host.
func (w *World) Subflow(host, to string, addr netip.Addr) error {
	limits := func() error {
		return genl("mptcp_pm", pmSetLimits, nl.NewRtAttr(pmAttrAdded, nl.Uint32Attr(1)), nl.NewRtAttr(pmAttrSubflows, nl.Uint32Attr(1)))
	}
	if err := w.Do(to, limits); err != nil {
		return fmt.Errorf("lab: subflows of %s: %w", to, err)
	}
	err := w.Do(host, func() error {
		if err := limits(); err != nil {
			return err
		}
		a := nl.NewRtAttr(pmAttrAddr|unix.NLA_F_NESTED, nil)
		a.AddRtAttr(pmAddrFamily, nl.Uint16Attr(unix.AF_INET))
		a.AddRtAttr(pmAddr4, addr.AsSlice())
		a.AddRtAttr(pmAddrFlags, nl.Uint32Attr(pmFlagSubflow))
		return genl("mptcp_pm", pmAddAddr, a)
	})
	if err != nil {
		return fmt.Errorf("lab: subflows of %s: %w", host, err)
	}
	return nil
}
