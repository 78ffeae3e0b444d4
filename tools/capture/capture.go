// SPDX-License-Identifier: Apache-2.0

// Package capture writes packets with their processes.
package capture

import (
	"cmp"
	_ "embed"
	"encoding/binary"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.File
	tool.On
	Snaplen uint32 `flag:"snaplen" bpf:"snaplen" help:"maximum number of bytes of a packet to keep"`
}

// most is PACKET_MOST of capture.bpf.c.
const most = 65024

// dir is enum packet_dir of skb.h.
type dir uint8

// link is LINK_* of capture.bpf.c.
type link uint8

// event is struct packet_event of capture.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Dev       kern.Comm `col:"dev,width=8,key" help:"device"`
	Ifindex   uint32    `col:"ifindex,width=7,key" help:"index of the device in its network namespace"`
	Len       uint32    `col:"bytes,head=LEN,width=6,sum" help:"length of the packet, with the link-layer header"`
	Size      uint32    `col:"kept_bytes,width=6,sum" help:"number of bytes of the packet that were kept"`
	Lost      uint32    `col:"lost,width=6" help:"packets of this device, from the start to this packet, that did not fit into the buffer"`
	ToPID     kern.ID32 `col:"to_pid,width=7,key" help:"on the loopback device: the process that receives the packet"`
	ToComm    kern.Comm `col:"to_comm,width=16,key" help:"name of that process"`
	VlanProto uint16    `col:"-"`
	VlanTci   uint16    `col:"-"`
	Echo      uint16    `col:"-"`
	Skip      uint16    `col:"-"`
	Dir       dir       `col:"dir,width=3,left,key" words:"in,out" help:"in or out; on the loopback device each packet has one row, as out"`
	Link      link      `col:"link,width=8,key" words:"ethernet,ip" help:"first header of the packet: ethernet or ip"`
	MacLen    uint8     `col:"-"`
	Mac       [16]uint8 `col:"-"`
	Pad       [5]uint8  `col:"-"`
}

const vlanTag = 4

// whole returns a function that restores the packet as it is on the wire: with the link-layer header
// and with the VLAN tag that the kernel keeps in a field of the skb.
func whole(snaplen *uint32) func(*event, *row.Row) {
	var frame []byte
	var at []int // columns of an IP packet, ports first, then the lengths
	blank := func(r *row.Row, columns []int) {
		for _, i := range columns {
			r.Cells[i] = row.Cell{}
		}
	}
	return func(e *event, r *row.Row) {
		if at == nil {
			for _, id := range []string{"lport", "rport", "laddr", "raddr", "family", "ip", "proto", "bytes", "kept_bytes"} {
				at = append(at, r.Schema.Index(id))
			}
		}
		if e.Family == 0 { // not an IP packet
			blank(r, at[:7])
		} else if e.Lport == 0 && e.Rport == 0 {
			blank(r, at[:2])
		}
		data := r.Bytes[:min(int(e.Size), len(r.Bytes))]
		skip := min(int(e.Skip), len(data))
		frame = append(frame[:0], e.Mac[:min(int(e.MacLen), len(e.Mac))]...)
		frame = append(frame, data[skip:]...)
		length := e.Len - uint32(skip)
		if e.VlanProto != 0 && len(frame) >= 12 {
			frame = append(frame, 0, 0, 0, 0)
			copy(frame[12+vlanTag:], frame[12:])
			binary.BigEndian.PutUint16(frame[12:], e.VlanProto)
			binary.BigEndian.PutUint16(frame[14:], e.VlanTci)
			length += vlanTag
		}
		frame = frame[:min(len(frame), int(*snaplen))]
		r.Bytes = frame
		r.Cells[at[7]].SetUint(uint64(length))
		r.Cells[at[8]].SetUint(uint64(len(frame)))
	}
}

func check(cfg any) error {
	c := cfg.(*config)
	if c.Snaplen == 0 || c.Snaplen > most {
		return tool.Usagef("--snaplen: 1 to %d bytes", most)
	}
	return cmp.Or(c.File.Check(), c.On.Check())
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Output: tool.Stream[event]{Type: "packet_event", Each: whole(&c.Snaplen)},
		Show:   "time pid comm::12 dev dir proto::5 laddr+lport::21 raddr+rport::21 bytes",
		Says:   "{dev} {dir}[ {proto}], {bytes} bytes",
		Time:   "micro",
	}
	if c.Path != "" {
		v.Format = "pcapng"
	}
	return []tool.View{v}
}

// Tool is capture.
var Tool = &tool.Tool{
	Name: "capture", Layer: tool.Device, Short: "packets with their process, as pcapng",
	Banner:  "Capturing packets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple | tool.FilterDev,
	Sockets: tool.OfIP("tcp", "udp", "icmp", "icmpv6"),
	Config:  func() any { return &config{Snaplen: most} },
	Check:   check,
	Formats: []string{"pcapng"},
	Buffer:  32 << 20,
	Points: []probe.Point{
		{Name: "unbound", Optional: true, Misses: "when UDP sockets end: they take up room"},
		{Name: "bound", Optional: true, Misses: "the process of packets for UDP sockets that are bound after the start, until they send"},
		{Name: "sender", Optional: true, Misses: "the process of the first packets that are sent on a socket that another process opened"},
		{Name: "state"}, {Name: "in"}, {Name: "out"},
	},
	Views: views,
}
