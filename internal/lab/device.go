// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// QueueLength sets how many packets a device of a host may have waiting.
func (w *World) QueueLength(host, dev string, packets int) error {
	return w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		return netlink.LinkSetTxQLen(l, packets)
	})
}

// Sent is how many packets a device of a host has sent so far.
func (w *World) Sent(host, dev string) (packets uint64, err error) {
	s, err := w.LinkStats(host, dev)
	return s.TxPackets, err
}

// AwaitFrames calls send, which makes a device of a host receive n frames of an unknown
// protocol, and returns when the stack has processed them.
func (w *World) AwaitFrames(host, dev string, count int, send func() error) error {
	before, err := w.LinkStats(host, dev)
	if err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	return Until(fmt.Sprintf("%s of %s receives %d frames", dev, host, count), func() (bool, error) {
		now, err := w.LinkStats(host, dev)
		return int(now.RxDropped-before.RxDropped) >= count, err
	})
}

// LinkStats is what the kernel has counted at a device of a host so far.
func (w *World) LinkStats(host, dev string) (s netlink.LinkStatistics, err error) {
	err = w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err == nil {
			s = *l.Attrs().Statistics
		}
		return err
	})
	return s, err
}

// Macvlan puts a device on top of another one of a host.
func (w *World) Macvlan(host, dev, on string) error {
	return w.stack(host, dev, on, func(attrs netlink.LinkAttrs) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PRIVATE}
	})
}

// VLAN puts a device for a VLAN on top of another one of a host, and gives it an address.
func (w *World) VLAN(host, dev, on string, id int, addr netip.Prefix) error {
	err := w.stack(host, dev, on, func(attrs netlink.LinkAttrs) netlink.Link {
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	})
	if err != nil {
		return err
	}
	return w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		ip := &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), addr.Addr().BitLen())}
		return netlink.AddrAdd(l, &netlink.Addr{IPNet: ip})
	})
}

// stack puts a device on top of another one of a host, and sets it up.
func (w *World) stack(host, dev, on string, make func(netlink.LinkAttrs) netlink.Link) error {
	return w.Do(host, func() error {
		parent, err := netlink.LinkByName(on)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = dev, parent.Attrs().Index
		l := make(attrs)
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("lab: %w", unsupported(l.Type(), err))
		}
		return raise(dev)
	})
}

// Card moves a network card with that driver into a host and sets it up. The
// card goes back shortly after the world ends. Only guests of test/vm have spare
// cards: those that are down.
func (w *World) Card(host, driver string) (dev string, err error) {
	if !Emulated() {
		return "", fmt.Errorf("lab: %w: the cards of this machine are its own", ErrNotSupported)
	}
	if bound, err := filepath.Glob("/sys/bus/*/drivers/" + driver + "/*/driver"); err != nil || len(bound) == 0 {
		return "", fmt.Errorf("lab: %w: no card by %s", ErrNotSupported, driver)
	}
	for range 100 {
		if dev := freeCard(driver); dev != nil {
			if err := netlink.LinkSetNsFd(dev, int(w.must(host).ns.Fd())); err != nil {
				return "", fmt.Errorf("lab: %s: %w", dev.Attrs().Name, err)
			}
			return dev.Attrs().Name, w.Do(host, func() error { return raiseCarrier(dev.Attrs().Name) })
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", fmt.Errorf("lab: no card by %s came back from where it was", driver)
}

// freeCard is a card with that driver that is in this namespace and down; nil:
// none.
func freeCard(driver string) netlink.Link {
	paths, err := filepath.Glob("/sys/class/net/*/device/driver")
	if err != nil {
		return nil
	}
	for _, p := range paths {
		if to, err := os.Readlink(p); err != nil || filepath.Base(to) != driver {
			continue
		}
		l, err := netlink.LinkByName(filepath.Base(filepath.Dir(filepath.Dir(p))))
		if err == nil && l.Attrs().RawFlags&unix.IFF_UP == 0 {
			return l
		}
	}
	return nil
}

// raiseCarrier sets a device up and waits until it can send. It runs on a thread
// in the host.
func raiseCarrier(dev string) error {
	ev, err := watch(unix.RTNLGRP_LINK)
	if err != nil {
		return err
	}
	defer ev.Close()
	if err := raise(dev); err != nil {
		return err
	}
	return ev.until("carrier", func() (bool, error) {
		l, err := netlink.LinkByName(dev)
		return err == nil && l.Attrs().OperState == netlink.OperUp, err
	})
}
