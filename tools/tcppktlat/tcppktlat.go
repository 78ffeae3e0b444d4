// SPDX-License-Identifier: Apache-2.0

// Package tcppktlat shows how long TCP packets wait until the application reads them.
package tcppktlat

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.Latency
	Parts  bool `flag:"parts" bpf:"show_parts" help:"split the time in three parts: before TCP (softirq), before the application's call (application), and in the call (socket)"`
	Events bool `flag:"events" bpf:"show_events" help:"a row for each read, with the latency of the oldest packet in it"`
}

// key is struct packet_key of tcppktlat.bpf.c.
type key struct {
	Cgroup uint64    `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID    kern.ID32 `col:"pid,width=7,key" help:"process that reads"`
	TID    kern.ID32 `col:"tid,width=7,key" help:"thread id"`
	UID    uint32    `col:"uid,width=5,key" help:"user"`
	Netns  kern.ID32 `col:"netns,width=10,key" help:"network namespace, by inode"`
	Comm   kern.Comm `col:"comm,width=16,key" help:"process name"`
	Thread kern.Comm `col:"thread,width=16,key" help:"thread name"`
	Laddr  kern.Addr `col:"laddr,width=15,key" help:"local address"`
	Raddr  kern.Addr `col:"raddr,width=15,key" help:"remote address"`
	Lport  uint16    `col:"lport,width=5,key" help:"local port"`
	Rport  uint16    `col:"rport,width=5,key" help:"remote port"`
	Port   uint16    `col:"port,width=5,key" help:"port of the service: the local one of a connection that was accepted, else the remote one"`
	Part   part      `col:"part,width=11,left,key" words:"all,softirq,socket,application" help:"part of the time; softirq: from the device to TCP; application: from TCP to the application's call; socket: in that call; all without --parts"`
}

// part is enum packet_part of tcppktlat.bpf.c.
type part uint16

// value is struct packet_value of tcppktlat.bpf.c.
type value struct {
	Hist kern.Hist `col:"latency_us,unit=us" help:"time from TCP's receipt of a packet to the read, as a histogram"`
}

// event is struct packet_event of tcppktlat.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Latency kern.Nanos `col:"latency_us,head=LATENCY(us),div=1000,width=11" help:"time from TCP's receipt of the oldest packet to the read"`
	Softirq kern.Nanos `col:"softirq_us,head=SOFTIRQ,div=1000,width=8" help:"with --parts: the time before that, from the device to TCP; absent if the kernel copied the packet in between"`
	Socket  kern.Nanos `col:"socket_us,head=SOCKET,div=1000,width=8" help:"with --parts: the part of the latency in the application's call, until it had the data"`
	App     kern.Nanos `col:"app_us,head=APP,div=1000,width=8" help:"with --parts: the part of the latency before the application's call"`
	Packets uint32     `col:"packets,width=7,sum" help:"packets that were read"`
	Pad     uint32     `col:"-"`
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Output: tool.Snapshot[key, value]{Map: "waits"},
		Show:   "comm port latency_us",
		Says:   "[port {port}: ]{count} packets, p50 {p50}, p99 {p99} us",
		By:     []string{"comm", "port"},
		Sort:   "latency_us",
	}
	if c.Parts {
		v.Show, v.Says = "comm port part latency_us", "[port {port}: ][{part}: ]{count} packets, p50 {p50}, p99 {p99} us"
		v.By, v.Always = []string{"comm", "port", "part"}, []string{"part"}
	}
	if c.Events {
		v = tool.View{
			Output: tool.Stream[event]{Type: "packet_event"},
			Show:   "time pid comm::12 laddr+lport::21 raddr+rport::21 packets latency_us",
			Says:   "{packets} packets read, {latency_us} us after they arrived",
		}
		if c.Parts {
			v.Show = "time pid comm::12 lport raddr+rport::21 packets softirq_us app_us socket_us"
			v.Says = "{packets} packets read, after[ {softirq_us} us to TCP,][ {app_us} us before the call,][ {socket_us} us in it]"
		}
	}
	if c.Parts {
		v.Points = []probe.Point{{Name: "receive"}, {Name: "call"}, {Name: "thread"}}
	}
	return []tool.View{v}
}

// Tool is tcppktlat.
var Tool = &tool.Tool{
	Name: "tcppktlat", Layer: tool.TCP, Short: "time from a packet's arrival to the application's read",
	Banner:  "Tracing reads of TCP packets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "gone"}, {Name: "read"}, {Name: "arrive"}},
	Views:   views,
}
