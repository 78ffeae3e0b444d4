// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Via makes two hosts talk through a third one, in both directions, although
// there is a link between them.
func (w *World) Via(a, router, b string) error {
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if err := w.Sysctl(router, name, "1"); err != nil {
			return err
		}
	}
	if err := w.route(a, b, router); err != nil {
		return err
	}
	return w.route(b, a, router)
}

// Dev is the device of a host that leads to another one.
func (w *World) Dev(host, to string) string {
	others := slices.DeleteFunc(w.Hosts(), func(h string) bool { return h == host })
	return w.must(host).devs[slices.Index(others, to)]
}

// route sends a host's packets for another one to a third.
func (w *World) route(host, to, gateway string) error {
	dev := w.Dev(host, gateway)
	err := w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		for _, d := range []struct{ to, gateway, from netip.Addr }{
			{w.Addr4(to), w.Addr4(gateway), w.Addr4(host)},
			{w.Addr6(to), w.Addr6(gateway), w.Addr6(host)},
		} {
			if !d.to.IsValid() {
				continue
			}
			r := &netlink.Route{
				LinkIndex: l.Attrs().Index, Dst: single(d.to), Gw: d.gateway.AsSlice(), Src: d.from.AsSlice(),
				Flags: int(netlink.FLAG_ONLINK),
			}
			if d.to.Is6() {
				r.Priority = 1 // before the link's own, which is 256
			}
			if err := netlink.RouteReplace(r); err != nil {
				return fmt.Errorf("route to %s by %s: %w", d.to, d.gateway, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: host %s: %w", host, err)
	}
	return nil
}

// Forget deletes a host's neighbour entries of another one, so that the next
// send uses ARP or neighbour discovery.
func (w *World) Forget(host, to string) error {
	return w.Do(host, func() error {
		l, err := netlink.LinkByName(w.Dev(host, to))
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{w.Addr4(to), w.Addr6(to)} {
			if !a.IsValid() {
				continue
			}
			n := &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: family(a), IP: a.AsSlice()}
			if err := netlink.NeighDel(n); err != nil {
				return fmt.Errorf("lab: neighbour %s: %w", a, err)
			}
		}
		return nil
	})
}
