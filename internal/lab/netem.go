// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Congest makes a device of a host set the congestion mark on every ECN-capable
// packet, by the queueing discipline netem.
func (w *World) Congest(host, dev string) error {
	return w.netem(host, dev, 1, true)
}

// Lose makes a device of a host lose this share of its sent packets at random,
// by the queueing discipline netem.
func (w *World) Lose(host, dev string, part float64) error {
	return w.netem(host, dev, part, false)
}

// netem loses a part of the packets, or marks them if they can be marked.
func (w *World) netem(host, dev string, part float64, mark bool) error {
	return w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index), Parent: netlink.HANDLE_ROOT})
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("netem")))
		q := nl.TcNetemQopt{Limit: 1000, Loss: uint32(part * math.MaxUint32)}
		options := nl.NewRtAttr(nl.TCA_OPTIONS, q.Serialize())
		if mark {
			const ecn = 7 // TCA_NETEM_ECN, which package netlink does not know
			options.AddRtAttr(ecn, binary.NativeEndian.AppendUint32(nil, 1))
		}
		req.AddData(options)
		_, err = req.Execute(unix.NETLINK_ROUTE, 0)
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("lab: %w: no queueing discipline netem", ErrNotSupported)
		}
		return err
	})
}
