// SPDX-License-Identifier: Apache-2.0

// Package tcpsynbl shows how full the queues of listeners are, and which SYNs
// are dropped because a queue is full.
package tcpsynbl

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// queue is enum queue of tcpsynbl.bpf.c.
type queue uint32

// moment is enum moment of tcpsynbl.bpf.c.
type moment uint32

// key is struct synbl_key of tcpsynbl.bpf.c.
type key struct {
	Laddr kern.Addr `col:"laddr,width=15,key" help:"address of the listener; all zeros: any"`
	Queue queue     `col:"metric,head=QUEUE,width=6,key" words:"syn,accept" help:"the queue: syn (handshakes that are not complete) or accept (connections that wait for a process)"`
	Limit uint32    `col:"limit,width=6,key" help:"how many the queue may hold: the backlog of listen(2), limited by net.core.somaxconn"`
	PID   kern.ID32 `col:"pid,width=7,key" help:"process of the listener"`
	UID   uint32    `col:"uid,width=5,key" help:"user"`
	Comm  kern.Comm `col:"comm,width=16,key" help:"process name"`
	Netns kern.ID32 `col:"netns,width=10,key" help:"network namespace, by inode"`
	Lport uint16    `col:"lport,width=5,key" help:"port of the listener"`
	Pad   uint16    `col:"-"`
}

// value is struct synbl_value of tcpsynbl.bpf.c.
type value struct {
	Used kern.Hist `col:"used,unit=entries" help:"length of the queue when a SYN came, as a histogram"`
}

// event is struct synbl_event of tcpsynbl.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	At    moment `col:"at,width=3,key" words:"SYN,ACK" help:"what was dropped: a SYN, or the ACK that completes a handshake"`
	Queue queue  `col:"queue,width=6,key" words:"syn,accept" help:"the queue that was full: syn or accept"`
	Used  uint32 `col:"used,width=6" help:"its length"`
	Limit uint32 `col:"limit,width=6" help:"how many it may hold"`
}

var views = []tool.View{
	{
		Name:   "backlog",
		Output: tool.Snapshot[key, value]{Map: "lengths"},
		Show:   "comm laddr lport metric limit used",
		Says:   "[{metric}: ]{count} SYNs, p50 {p50}, p99 {p99}[ of {limit} in the queue]",
		By:     []string{"comm", "laddr", "lport", "metric", "limit"},
	},
	{
		Name:   "drops",
		Output: tool.Stream[event]{Type: "synbl_event"},
		Show:   "time pid comm laddr+lport::21 raddr+rport::21 at:DROPPED queue used limit",
		Says:   "{at} dropped, {queue} queue {used} of {limit}",
	},
}

const before = "nothing, but it misjudges repeated SYNs and SYNs that netfilter rewrites or drops"

// Tool is tcpsynbl.
var Tool = &tool.Tool{
	Name: "tcpsynbl", Layer: tool.TCP, Short: "SYN and accept queues of listeners, and what they drop",
	Banner:  "Tracing the queues of listeners.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp").Or(map[string]string{"unix": "solisten"}),
	Points: []probe.Point{
		{Name: "syn", Ways: []probe.Way{
			{Name: "fentry", Programs: []string{"asked__fentry"}},
			{Name: "kprobe", Programs: []string{"asked__kprobe"}},
			{Name: "btf", Programs: []string{"packet__btf"}, Misses: before},
			{Name: "raw", Programs: []string{"packet__raw"}, Misses: before},
		}},
		{Name: "ack", Optional: true, Misses: "drops of the ACK that completes a handshake"},
	},
	Views: func(any) []tool.View { return views },
}
