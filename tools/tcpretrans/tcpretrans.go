// SPDX-License-Identifier: Apache-2.0

// Package tcpretrans shows each TCP retransmission with its process and cause.
package tcpretrans

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Probes   bool `flag:"lossprobe" short:"l" bpf:"show_probes" help:"also show tail loss probes"`
	Counting bool `flag:"count-by-flow" short:"c" bpf:"counting" help:"count by flow instead of showing rows"`
	Sequence bool `flag:"sequence" short:"s" help:"show sequence numbers"`
}

// cause is enum cause of tcpretrans.bpf.c.
type cause uint32

// event is struct retrans_event of tcpretrans.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Cause  cause       `col:"cause,width=6;type,head=T,after=>" words:"rto,fast,tlp,synack" help:"rto: a timeout, fast: the peer's acknowledgements showed a loss, tlp: tail loss probe, synack: answer to a SYN; R: data or SYN sent again, L: tail loss probe, S: answer to a SYN sent again"`
	Seq    uint32      `col:"seq,width=10" help:"sequence number of the first byte"`
	Bytes  uint32      `col:"bytes,width=6,sum" help:"payload of the packet; 0 if it could not be sent"`
	Segs   uint32      `col:"segments,width=4,sum" help:"segments that the packet is cut into; 0 if it could not be sent"`
	Row    uint32      `col:"attempts,width=4" help:"timeouts in a row, this one included; of a SYN-ACK: how often it was sent again"`
	Total  uint32      `col:"total_retrans,width=6" help:"segments that this connection has sent again so far"`
	Result kern.Result `col:"errno,as=errno,width=13" help:"why sending it failed; only from kernel 6.18 on"`
	State  kern.State  `col:"state,width=11" help:"state of the connection"`
	Pad    [3]uint8    `col:"-"`
}

// key is struct retrans_key of tcpretrans.bpf.c.
type key struct {
	PID   kern.ID32  `col:"pid,width=7,key" help:"process"`
	UID   uint32     `col:"uid,width=5,key" help:"user"`
	Comm  kern.Comm  `col:"comm,width=16,key" help:"process name"`
	Laddr kern.Addr  `col:"laddr,width=15,key" help:"local address"`
	Raddr kern.Addr  `col:"raddr,width=15,key" help:"remote address"`
	Lport uint16     `col:"lport,width=5,key" help:"local port"`
	Rport uint16     `col:"rport,width=5,key" help:"remote port"`
	Cause cause      `col:"cause,width=6,key" words:"rto,fast,tlp,synack" help:"rto, fast, tlp or synack"`
	State kern.State `col:"state,width=11,key" help:"state of the connection"`
	Pad   [3]uint8   `col:"-"`
	Netns kern.ID32  `col:"netns,width=10,key" help:"network namespace, by inode"`
}

// value is struct retrans_count of tcpretrans.bpf.c.
type value struct {
	Count uint64 `col:"count,head=RETRANSMITS,width=11,sum" help:"packets sent again"`
	Segs  uint64 `col:"segments,width=8,sum" help:"segments in them: the kernel's RetransSegs less TCPRetransFail"`
}

// letter gives R, L or S, as BCC does.
func letter(e *event, r *row.Row) {
	r.Get("type").SetText([...]string{"R", "R", "L", "S"}[e.Cause&3])
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	if c.Counting {
		return []tool.View{{
			Output: tool.Snapshot[key, value]{Map: "counts"},
			Show:   "laddr lport raddr rport count segments",
			Says:   "{count} retransmissions, {segments} segments",
			By:     []string{"laddr", "lport", "raddr", "rport"},
			Sort:   "count",
		}}
	}
	v := tool.View{
		Output: tool.Stream[event]{Type: "retrans_event", Each: letter},
		Show:   "time pid comm::10 laddr+lport::18 type raddr+rport::18 cause state",
		Says:   "retransmission[: {cause}][ in {state}]",
		Time:   "micro",
	}
	if c.Sequence {
		v.Show += " seq"
	}
	return []tool.View{v}
}

// Tool is tcpretrans.
var Tool = &tool.Tool{
	Name: "tcpretrans", Layer: tool.TCP, Short: "TCP retransmissions, and why",
	Banner:  "Tracing TCP retransmissions.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "retrans"}, {Name: "synack"}},
	Views:   views,
}
