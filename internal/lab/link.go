// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses that lead nowhere, the same in every world. They are of the ranges
// kept for documentation, so no machine has them.
var (
	// NoRoute4 and NoRoute6 have no route: connect gives ENETUNREACH.
	NoRoute4 = netip.MustParseAddr("198.51.100.1")
	NoRoute6 = netip.MustParseAddr("2001:db8:1::1")
	// Unreachable4 and Unreachable6 have an unreachable route:
	// EHOSTUNREACH.
	Unreachable4 = netip.MustParseAddr("203.0.113.1")
	Unreachable6 = netip.MustParseAddr("2001:db8:2::1")
	// Prohibited4 and Prohibited6 have a prohibit route: EACCES.
	Prohibited4 = netip.MustParseAddr("203.0.113.2")
	Prohibited6 = netip.MustParseAddr("2001:db8:2::2")
)

// loopback brings up lo, and sets what all hosts have in common. It runs on the
// host's thread.
func (h *host) loopback() error {
	if err := setSysctl("net.ipv4.ip_local_port_range", "10000 65535"); err != nil && !errors.Is(err, unix.EROFS) {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo: up: %w", err)
	}
	dead := map[netip.Addr]int{Unreachable4: unix.RTN_UNREACHABLE, Prohibited4: unix.RTN_PROHIBIT}
	if _, err := os.Stat("/proc/thread-self/net/if_inet6"); !errors.Is(err, fs.ErrNotExist) {
		h.addr6 = netip.IPv6Loopback()
		dead[Unreachable6], dead[Prohibited6] = unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT
	}
	for addr, kind := range dead {
		if err := netlink.RouteAdd(&netlink.Route{Dst: single(addr), Type: kind}); err != nil {
			return fmt.Errorf("route to %s: %w", addr, err)
		}
	}
	return nil
}

// end is one end of a veth pair.
type end struct {
	*host
	dev string
	mac net.HardwareAddr
}

// join makes a veth pair between each two hosts and returns when they can talk.
func (w *World) join() error {
	if len(w.hosts) < 2 {
		return nil
	}
	for i, h := range w.hosts {
		h.addr4 = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		if h.addr6.IsValid() {
			h.addr6 = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: byte(i + 1)})
		}
	}
	for i, a := range w.hosts {
		for j, b := range w.hosts[i+1:] {
			if err := pair(a, b, i, i+1+j); err != nil {
				return fmt.Errorf("link %s to %s: %w", a.name, b.name, err)
			}
		}
	}
	return nil
}

// pair joins hosts number i and j.
func pair(a, b *host, i, j int) error {
	x := end{a, fmt.Sprintf("eth%d", len(a.devs)), net.HardwareAddr{2, 0, 0, 0, byte(i), byte(j)}}
	y := end{b, fmt.Sprintf("eth%d", len(b.devs)), net.HardwareAddr{2, 0, 0, 0, byte(j), byte(i)}}
	a.devs, b.devs = append(a.devs, x.dev), append(b.devs, y.dev)
	if err := a.do(func() error { return x.create(y) }); err != nil {
		return err
	}
	for _, step := range []func(e, peer end) error{
		func(e, _ end) error { return e.up() },
		func(e, peer end) error { return e.configure(peer) },
	} {
		if err := a.do(func() error { return step(x, y) }); err != nil {
			return fmt.Errorf("%s in %s: %w", x.dev, a.name, err)
		}
		if err := b.do(func() error { return step(y, x) }); err != nil {
			return fmt.Errorf("%s in %s: %w", y.dev, b.name, err)
		}
	}
	return nil
}

// create makes the pair, with e in the calling thread's namespace.
//
// The index of one end is chosen here: where both ends happen to have the same
// one, as in two fresh namespaces, the kernel takes the veth for a plain device
// and may let a second pass before it acts on the carrier (linkwatch).
func (e end) create(peer end) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Index = e.dev, e.mac, 1000+len(e.devs)
	err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         peer.dev,
		PeerHardwareAddr: peer.mac,
		PeerNamespace:    netlink.NsFd(int(peer.ns.Fd())),
	})
	if err != nil {
		return unsupported("veth", err)
	}
	return nil
}

// up sets the device up. No link-local IPv6 address is made: its duplicate address detection and
// router solicitations would be unwanted traffic.
func (e end) up() error {
	l, err := netlink.LinkByName(e.dev)
	if err != nil {
		return err
	}
	if e.addr6.IsValid() {
		const none = 1 // IN6_ADDR_GEN_MODE_NONE
		if err := netlink.LinkSetIP6AddrGenMode(l, none); err != nil {
			return fmt.Errorf("no link-local address: %w", err)
		}
	}
	return netlink.LinkSetUp(l)
}

// configure waits for the carrier, gives the device the host's addresses and
// tells it where its peer is.
func (e end) configure(peer end) error {
	ev, err := watch(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer ev.Close()
	var l netlink.Link
	err = ev.until("carrier", func() (bool, error) {
		var err error
		l, err = netlink.LinkByName(e.dev)
		return err == nil && l.Attrs().OperState == netlink.OperUp, err
	})
	if err != nil {
		return err
	}
	to := map[netip.Addr]netip.Addr{e.addr4: peer.addr4}
	if e.addr6.IsValid() {
		to[e.addr6] = peer.addr6
	}
	for addr, far := range to {
		a := &netlink.Addr{IPNet: single(addr), Peer: single(far)}
		if addr.Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("address %s: %w", addr, err)
		}
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex:    l.Attrs().Index,
			Family:       family(addr),
			State:        netlink.NUD_PERMANENT,
			IP:           far.AsSlice(),
			HardwareAddr: peer.mac,
		}); err != nil {
			return fmt.Errorf("neighbour %s: %w", far, err)
		}
	}
	if !e.addr6.IsValid() {
		return nil
	}
	// An IPv6 address gets its routes from a work queue, a moment later, and the
	// one to the peer last.
	return ev.until("route to "+peer.addr6.String(), func() (bool, error) {
		routes, err := netlink.RouteListFiltered(unix.AF_INET6,
			&netlink.Route{Dst: single(peer.addr6), LinkIndex: l.Attrs().Index}, netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			return false, nil // something changed meanwhile, which is an event
		}
		return len(routes) > 0, err
	})
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
