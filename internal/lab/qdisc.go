// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Qdisc is a queueing discipline for a device. Fields that its kind does not
// use are ignored.
type Qdisc struct {
	Kind   string
	Parent uint32 // of netlink.MakeHandle; default: the device
	Handle uint32 // likewise; default: the kernel's choice
	Rate   int    // bytes a second: tbf, cbs, and cake, and the class of htb, which has the handle's minor number 1
	Burst  int    // burst in bytes: tbf, cbs
	Limit  int    // bytes that may wait, or packets: tbf, red, pfifo
}

// SetQdisc replaces a queueing discipline of a host's device. The error is
// ErrNotSupported if the kernel lacks the kind.
func (w *World) SetQdisc(host, dev string, q Qdisc) error {
	setDefault(&q.Parent, netlink.HANDLE_ROOT)
	err := w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		index := l.Attrs().Index
		if err := q.request(unix.RTM_NEWQDISC, index, q.Parent, q.Handle, q.options()); err != nil {
			return err
		}
		if q.Kind != "htb" {
			return nil
		}
		return q.request(unix.RTM_NEWTCLASS, index, q.Handle, q.Handle|1, q.class())
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("lab: %w: no queueing discipline %s", ErrNotSupported, q.Kind)
	} else if err != nil {
		return fmt.Errorf("lab: %s on %s: %w", q.Kind, dev, err)
	}
	return nil
}

func (q Qdisc) request(message, index int, parent, handle uint32, options []byte) error {
	req := nl.NewNetlinkRequest(message, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent, Handle: handle})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(q.Kind)))
	if options != nil {
		req.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, options))
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// words is numbers in a row, as in a C struct of 32-bit words.
func words(n ...uint32) (b []byte) {
	for _, w := range n {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// rate is struct tc_ratespec, with Ethernet as the link layer, so that the
// kernel needs no rate table.
func rate(bytes int) []byte { return words(1<<8, 0, uint32(bytes)) }

func attr(kind int, parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return nl.NewRtAttr(kind, b).Serialize()
}

// options is the netlink attributes of a kind, with the numbers of
// linux/pkt_sched.h.
func (q Qdisc) options() []byte {
	switch q.Kind {
	case "tbf": // TCA_TBF_PARMS: rate, peak rate, limit, buffer, mtu; TCA_TBF_BURST
		return append(attr(1, rate(q.Rate), make([]byte, 12), words(uint32(q.Limit), 0, 0)), attr(6, words(uint32(q.Burst)))...)
	case "htb": // TCA_HTB_INIT: version, rate2quantum, default class, debug, direct packets
		return attr(2, words(3, 10, 1, 0, 0))
	case "red": // TCA_RED_PARMS: limit, least and greatest length, three logarithms; TCA_RED_STAB; TCA_RED_MAX_P
		n := uint32(q.Limit)
		logs := []byte{9, 31, 0, 0}
		return append(append(attr(1, words(n, n/4, n/2), logs), attr(2, make([]byte, 256))...), attr(3, words(1<<26))...)
	case "cbs": // TCA_CBS_PARMS: offload, credits, slopes in kbit/s
		kbit := int32(q.Rate / 125)
		return attr(1, words(0, uint32(q.Burst), uint32(-int32(q.Burst)), uint32(kbit), uint32(kbit-10_000_000)))
	case "cake": // TCA_CAKE_BASE_RATE64
		return attr(2, binary.NativeEndian.AppendUint64(nil, uint64(q.Rate)))
	case "pfifo", "bfifo":
		return words(uint32(q.Limit))
	}
	return nil
}

// class is TCA_HTB_PARMS of a class: rate and ceiling, buffers in ticks, quantum.
func (q Qdisc) class() []byte {
	ticks := uint32(float64(q.Burst) / float64(q.Rate) * netlink.TickInUsec() * 1e6)
	return attr(1, rate(q.Rate), rate(q.Rate), words(ticks, ticks, 1500, 0, 0))
}

// QdiscCount is the kernel's counts of a queueing discipline.
type QdiscCount struct{ Packets, Dropped, Requeued, Waiting int }

// Since is the difference from an earlier count.
func (c QdiscCount) Since(before QdiscCount) QdiscCount {
	return QdiscCount{c.Packets - before.Packets, c.Dropped - before.Dropped, c.Requeued - before.Requeued, c.Waiting}
}

// QdiscCount reads it for one of a device of a host, by its parent.
func (w *World) QdiscCount(host, dev string, parent uint32) (c QdiscCount, err error) {
	err = w.Do(host, func() error {
		l, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		// Package netlink does not return requeues.
		req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index)})
		msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if t := nl.DeserializeTcMsg(m); int(t.Ifindex) == l.Attrs().Index && t.Parent == parent {
				return c.parse(m[nl.SizeofTcMsg:])
			}
		}
		return fmt.Errorf("lab: %s has no queueing discipline there", dev)
	})
	return c, err
}

// parse reads TCA_STATS2 of a message: TCA_STATS_BASIC begins with bytes and
// packets, TCA_STATS_QUEUE is length, backlog, drops and requeues.
func (c *QdiscCount) parse(message []byte) error {
	attrs, err := nl.ParseRouteAttr(message)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		if a.Attr.Type != nl.TCA_STATS2 {
			continue
		}
		stats, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return err
		}
		for _, s := range stats {
			word := func(i int) int { return int(binary.NativeEndian.Uint32(s.Value[4*i:])) }
			switch s.Attr.Type {
			case nl.TCA_STATS_BASIC:
				c.Packets = word(2)
			case nl.TCA_STATS_QUEUE:
				c.Waiting, c.Dropped, c.Requeued = word(0), word(2), word(3)
			}
		}
	}
	return nil
}
