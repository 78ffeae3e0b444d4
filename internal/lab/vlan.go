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

// PushVLAN gives what a device sends a VLAN tag (802.1Q), which the kernel keeps beside the packet for a
// driver that puts tags on itself, as that of veth does. It takes no VLAN device. Undo ends it.
func (w *World) PushVLAN(host, dev string, tci uint16) (undo func() error, err error) {
	push, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, 0x0081), // __be16
			asm.Mov.Imm(asm.R3, int32(tci)),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, 0), // TC_ACT_OK
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("lab: VLAN tags: %w", unsupported("tc", err))
	}
	defer push.Close()
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
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs:  netlink.FilterAttrs{LinkIndex: at, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL},
			Fd:           push.FD(),
			Name:         "push",
			DirectAction: true,
		})
		if err != nil {
			return errors.Join(noModule("cls_bpf", err), netlink.QdiscDel(qdisc))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lab: VLAN tags: %w", err)
	}
	return func() error { return w.Do(host, func() error { return netlink.QdiscDel(qdisc) }) }, nil
}

// noModule is unsupported for what the kernel looks for by name.
func noModule(what string, err error) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w (%w)", what, ErrNotSupported, err)
	}
	return unsupported(what, err)
}
