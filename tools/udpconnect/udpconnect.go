// SPDX-License-Identifier: Apache-2.0

// Package udpconnect shows each connect of a UDP socket and, with
// --unconnected, the first datagram of a socket to each peer.
package udpconnect

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Unconnected bool `flag:"unconnected" help:"also the first datagram of a socket to each peer that it is not connected to"`
}

// event is struct udp_event of udpconnect.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	How how    `col:"how,width=8,key" words:"connect,datagram" help:"connect, or datagram: the first to that peer"`
	Pad uint32 `col:"-"`
}

// how is HOW_* of udpconnect.bpf.c.
type how uint32

var datagram = probe.Point{Name: "datagram", Ways: []probe.Way{
	{Name: "cgroup", Programs: []string{"datagram__cgroup__*"}},
	{Name: "fentry", Programs: []string{"datagram__fentry__*"}},
	{Name: "kprobe", Programs: []string{"datagram__kprobe__*"}},
}}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Stream[event]{Type: "udp_event"},
		Show:   "time pid comm ip raddr rport",
		Says:   "connect[ by {how}]",
	}
	if cfg.(*config).Unconnected {
		v.Show += " how"
		v.Points = []probe.Point{datagram}
	}
	return []tool.View{v}
}

// Tool is udpconnect.
var Tool = &tool.Tool{
	Name: "udpconnect", Layer: tool.UDP, Short: "new UDP connections, and first datagrams to new peers",
	Banner:  "Tracing UDP connections.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("udp").Or(map[string]string{"tcp": "tcpconnect", "mptcp": "tcpconnect", "unix": "soconnect"}),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "connect"}, probe.Uring("uring", "connects by io_uring")},
	Views:   views,
}
