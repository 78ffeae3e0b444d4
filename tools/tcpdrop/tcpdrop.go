// SPDX-License-Identifier: Apache-2.0

// Package tcpdrop shows each TCP packet that the kernel drops: the reason, the
// place and the process.
package tcpdrop

import (
	_ "embed"
	"strings"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Stack   bool `bpf:"with_stack"`
	NoStack bool `flag:"no-stack" help:"leave out the kernel stack"`
}

// segment is struct segment of segment.h.
type segment struct {
	Saddr  kern.Addr     `col:"saddr,width=15,key" help:"address that it came from"`
	Daddr  kern.Addr     `col:"daddr,before=> ,width=15,key" help:"address that it was for"`
	Sport  uint16        `col:"sport,width=5,key" help:"port that it came from"`
	Dport  uint16        `col:"dport,width=5,key" help:"port that it was for"`
	Family uint16        `col:"-"`
	Window uint16        `col:"-"`
	Seq    uint32        `col:"seq,width=10" help:"sequence number"`
	Ack    uint32        `col:"-"`
	Len    uint32        `col:"bytes,width=6,sum" help:"payload"`
	Flags  kern.TCPFlags `col:"flags,before=(,after=),width=8,key" help:"TCP flags: S SYN, F FIN, R RST, P PSH, . ACK, U URG, E ECE, W CWR"`
	Pad    [3]uint8      `col:"-"`
}

// event is struct drop_event of tcpdrop.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Segment  segment           `col:",inline"`
	Location uint64            `col:"location,as=ksym,width=20" help:"where in the kernel it was dropped"`
	Reason   family.DropReason `col:"reason,width=16,key" help:"why, by the running kernel's own name; absent before 5.17"`
	Stack    kern.StackID      `col:"kstack,as=kstack" help:"kernel stack, innermost function first"`
	State    kern.State        `col:"state,width=11,key" help:"state of the socket, if there was one"`
	Pad      [7]uint8          `col:"-"`
}

// noLocation removes the columns that only the tracepoint has.
func noLocation(e *event, r *row.Row) {
	if e.Location == 0 {
		*r.Get("location") = row.Cell{}
	}
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	c.Stack = !c.NoStack
	v := tool.View{
		Output: tool.Stream[event]{Type: "drop_event", Each: noLocation},
		Show:   "time pid ip saddr+sport::21 daddr+dport::23 state flags reason kstack",
		Says:   "{flags} dropped[ in {state}][: {reason}]",
		Time:   "micro",
	}
	if c.NoStack {
		v.Show = strings.TrimSuffix(v.Show, " kstack")
	}
	return []tool.View{v}
}

// needsSocket reports whether this kernel does not name the socket of a drop.
func needsSocket(k *probe.Kernel) bool { return len(k.Args("kfree_skb")) < 4 }

const inSocket = "the process and the state of dropped packets; on kernels without reasons also packets that a socket drops itself"

// Tool is tcpdrop.
var Tool = &tool.Tool{
	Name: "tcpdrop", Layer: tool.TCP, Short: "dropped TCP packets, with reason and kernel stack",
	Banner:  "Tracing dropped TCP packets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns | tool.FilterFamily | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{Stack: true} },
	Points: []probe.Point{
		{Name: "drop"},
		{Name: "waits", Optional: true, Misses: "which packets without a reason a connection in TIME_WAIT has processed: they are shown as drops", Needed: needsSocket},
		{Name: "rcv", Optional: true, Misses: inSocket, Needed: needsSocket},
	},
	Views: views,
}
