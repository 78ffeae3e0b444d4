// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TagVLAN adds a VLAN tag (802.1Q) to the packets that a device sends, without a VLAN
// device. The kernel keeps the tag beside the packet for drivers that insert tags
// themselves, as veth's does. It removes the tag from packets that the device receives.
// Undo ends it.
func (w *World) TagVLAN(host, dev string, tci uint16) (undo func() error, err error) {
	return w.classify(host, dev,
		classifier{netlink.HANDLE_MIN_EGRESS, asm.Instructions{
			asm.Mov.Imm(asm.R2, 0x0081), // __be16
			asm.Mov.Imm(asm.R3, int32(tci)),
			asm.FnSkbVlanPush.Call(),
		}},
		classifier{netlink.HANDLE_MIN_INGRESS, asm.Instructions{asm.FnSkbVlanPop.Call()}})
}

// A classifier is a program that sees packets in one direction and passes them
// on.
type classifier struct {
	parent uint32
	does   asm.Instructions
}

// classify attaches programs to the packets of a device. Undo detaches them.
func (w *World) classify(host, dev string, all ...classifier) (undo func() error, err error) {
	qdisc := &netlink.GenericQdisc{QdiscType: "clsact"}
	err = w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		at := l.Attrs().Index
		qdisc.QdiscAttrs = netlink.QdiscAttrs{LinkIndex: at, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
		if err := netlink.QdiscAdd(qdisc); err != nil {
			return noModule("clsact", err)
		}
		for _, c := range all {
			if err := c.add(at); err != nil {
				return errors.Join(err, netlink.QdiscDel(qdisc))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lab: programs of tc: %w", err)
	}
	return func() error { return w.Do(host, func() error { return netlink.QdiscDel(qdisc) }) }, nil
}

func (c classifier) add(ifindex int) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: append(c.does, asm.Mov.Imm(asm.R0, 0) /* TC_ACT_OK */, asm.Return()),
	})
	if err != nil {
		return unsupported("tc", err)
	}
	defer prog.Close()
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs:  netlink.FilterAttrs{LinkIndex: ifindex, Parent: c.parent, Handle: 1, Protocol: unix.ETH_P_ALL},
		Fd:           prog.FD(),
		Name:         "lab",
		DirectAction: true,
	})
	if err != nil {
		return noModule("cls_bpf", err)
	}
	return nil
}

// noModule is unsupported for things that the kernel finds by name.
func noModule(what string, err error) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w (%w)", what, ErrNotSupported, err)
	}
	return unsupported(what, err)
}
