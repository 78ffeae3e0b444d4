// SPDX-License-Identifier: Apache-2.0

// Package tcpsnoop shows each TCP packet as the stack handles it.
package tcpsnoop

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// dir is SNOOP_* of tcpsnoop.bpf.c.
type dir uint8

// event is struct snoop_event of tcpsnoop.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Seq    uint32        `col:"seq,head=SEQ_ABS,width=10" help:"sequence number as in the header"`
	Ack    uint32        `col:"ack,head=ACK_ABS,width=10" help:"acknowledgement as in the header"`
	SeqRel kern.Opt      `col:"seq_rel,head=SEQ,width=9" help:"sequence number relative to the SYN; absent if the SYN was not seen"`
	AckRel kern.Opt      `col:"ack_rel,head=ACK,width=9" help:"acknowledgement relative to the peer's SYN; absent if that was not seen"`
	Len    uint32        `col:"bytes,head=LEN,width=6,sum" help:"payload bytes"`
	Segs   uint32        `col:"gso_segs,width=8,sum" help:"segments that this packet stands for"`
	Window uint16        `col:"window,head=WIN,width=5" help:"window as in the header, not scaled"`
	Flags  kern.TCPFlags `col:"flags,width=5,key" help:"TCP flags: S SYN, F FIN, R RST, P PSH, . ACK, U URG, E ECE, W CWR"`
	Dir    dir           `col:"dir,width=3,key" words:"in,out" help:"in or out"`
	Pad    uint32        `col:"-"`
}

// Tool is tcpsnoop.
var Tool = &tool.Tool{
	Name: "tcpsnoop", Layer: tool.TCP, Short: "TCP packets with their process, for short use",
	Banner:  "Tracing TCP packets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns | tool.FilterFamily | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Points:  []probe.Point{{Name: "state"}, {Name: "out"}, {Name: "in"}},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "snoop_event"},
		Show:   "time pid comm::12 dir laddr+lport::21 raddr+rport::21 flags seq_rel ack_rel window bytes",
		Says:   "{dir} {flags}, {bytes} bytes, window {window}",
		Time:   "micro",
	}),
}
