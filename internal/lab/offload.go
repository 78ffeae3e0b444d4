// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wire makes a veth device work like a network card: its peer segments what it
// sends, and the device polls (NAPI) and merges what it receives (GRO). An XDP
// program that passes everything has this effect on every kernel until it is
// closed; GRO must be switched on as well.
func (w *World) Wire(host, dev string) (io.Closer, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* XDP_PASS */), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("lab: wire: %w", err)
	}
	defer prog.Close()
	var l link.Link
	err = w.Do(host, func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		if err := ethtool(dev, sgro, 1); err != nil {
			return fmt.Errorf("GRO: %w", err)
		}
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lab: wire: %w", unsupported("XDP on "+dev, err))
	}
	return l, nil
}

// Join makes one host segment the packets that it sends to another. From 5.13
// on the receiving veth device polls and merges them, as with Wire, but without
// an XDP program, which may have to copy them.
func (w *World) Join(from, to string) error {
	if err := w.Do(from, func() error { return ethtool(w.Dev(from, to), stso, 0) }); err != nil {
		return fmt.Errorf("lab: TSO: %w", err)
	}
	if err := w.Do(to, func() error { return ethtool(w.Dev(to, from), sgro, 1) }); err != nil {
		return fmt.Errorf("lab: GRO: %w", err)
	}
	return nil
}

// Offload sets the offloads of a host's first link: with in, received packets
// are merged (GRO); without out, sent packets are segmented before they reach
// it.
func (w *World) Offload(host string, in, out bool) error {
	return w.Do(host, func() error {
		for command, on := range map[uint32]bool{sgro: in, stso: out, sgso: out} {
			value := uint32(0)
			if on {
				value = 1
			}
			if err := ethtool(w.Devs(host)[0], command, value); err != nil {
				return fmt.Errorf("lab: ethtool: %w", err)
			}
		}
		return nil
	})
}

// BigTCP lets every host hand packets of more than 64 KB to its first link, and
// take them: of IPv6 from 5.19 on, of IPv4 from 6.3 on.
func (w *World) BigTCP(n Network) error {
	const size = 190000
	set := netlink.LinkSetGSOMaxSize
	is := func(a *netlink.LinkAttrs) uint32 { return a.GSOMaxSize }
	if n.Family() == unix.AF_INET {
		set, is = netlink.LinkSetGSOIPv4MaxSize, func(a *netlink.LinkAttrs) uint32 { return a.GSOIPv4MaxSize }
	}
	for _, h := range w.hosts {
		if err := h.do(func() error {
			l, err := netlink.LinkByName(h.devs[0])
			if err != nil {
				return err
			}
			if l.Attrs().TSOMaxSize == 0 || is(l.Attrs()) == 0 { // attributes that came with it
				return fmt.Errorf("lab: %s over 64 KB at once: %w", n, ErrNotSupported)
			}
			return set(l, size)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Commands of ethtool: ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO.
const (
	stso = 0x1f
	sgso = 0x24
	sgro = 0x2c
)

// ethtool sets one number of a device in the namespace of the calling thread.
func ethtool(dev string, command, value uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	arg := [2]uint32{command, value}
	var req struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		rest [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	req.data = unsafe.Pointer(&arg)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&req)
	if e != 0 {
		return e
	}
	return nil
}
