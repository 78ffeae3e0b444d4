// SPDX-License-Identifier: Apache-2.0

// Package udplife shows each UDP socket at its end: the process, the peer, the
// bytes each way and the duration.
package udplife

import (
	_ "embed"
	"slices"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct life_event of udplife.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	TX          uint64     `col:"tx_bytes,head=TX_B,width=8,sum" help:"payload bytes sent"`
	RX          uint64     `col:"rx_bytes,head=RX_B,width=8,sum" help:"payload bytes received by the process"`
	TXDatagrams uint64     `col:"tx_datagrams,width=8,sum" help:"sends that succeeded"`
	RXDatagrams uint64     `col:"rx_datagrams,width=8,sum" help:"receives that succeeded, without peeks"`
	Duration    kern.Nanos `col:"duration_ms,head=MS,div=1000000,prec=2,width=9" help:"from when the socket was made until its end; absent for sockets older than the tool"`
	Seen        kern.Nanos `col:"seen_ms,div=1000000,prec=2,width=9" help:"how long the tool watched the socket"`
	Drops       uint32     `col:"drops,width=6,sum" help:"datagrams that came and were dropped: the receive buffer was full, or they were broken"`
	Connected   yes        `col:"connected" help:"whether it was connected to its peer"`
}

// yes is a boolean of 32 bits.
type yes uint32

func (yes) Kind() row.Kind { return row.Bool }

func (y *yes) Cell(c *row.Cell) { *c = row.Cell{Kind: row.Bool, N: uint64(*y)} }

// peerless removes the peer of an unconnected socket, which has none or many.
func peerless(e *event, r *row.Row) {
	if e.Connected == 0 {
		*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	}
}

const noFile = "sockets that io_uring creates"

// Tool is udplife.
var Tool = &tool.Tool{
	Name: "udplife", Layer: tool.UDP, Short: "UDP sockets with lifespan, bytes and drops",
	Banner:  "Tracing UDP sockets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("udp").Or(map[string]string{"tcp": "tcplife", "unix": "solife"}),
	Points: slices.Concat([]probe.Point{
		{Name: "release", Ways: []probe.Way{
			{Name: "cgroup", Programs: []string{"release__cgroup"}},
			{Name: "fentry", Programs: []string{"release__fentry__*"}},
			{Name: "kprobe", Programs: []string{"release__kprobe__*"}},
		}},
		{Name: "create", Ways: []probe.Way{
			{Name: "cgroup", Programs: []string{"create__cgroup"}},
			{Name: "tp", Programs: []string{"create__tp__*"}, Misses: noFile},
			{Name: "sys", Programs: []string{"create__btf__*"}, Misses: noFile + "; every system call of the machine pays for it"},
		}},
	}, family.NotTCP(family.SockIO)),
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "life_event", Each: peerless},
		Show:   "pid comm laddr lport raddr rport tx_bytes rx_bytes duration_ms",
		Says:   "[lived {duration_ms} ms, ]{tx_bytes} bytes out, {rx_bytes} in[, {drops} dropped]",
	}),
}
