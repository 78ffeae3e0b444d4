// SPDX-License-Identifier: Apache-2.0

// Package soconnlat shows how long connects take, by the code path that makes
// them.
package soconnlat

import (
	_ "embed"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// metric is enum metric of soconnlat.bpf.c.
type metric uint32

// key is struct lat_key of soconnlat.bpf.c.
type key struct {
	PID    kern.ID32    `col:"pid,width=7,key" help:"process"`
	TID    kern.ID32    `col:"tid,width=7,key" help:"thread id"`
	UID    uint32       `col:"uid,width=5,key" help:"user"`
	Metric metric       `col:"metric,width=7,key" words:"connect,failed,wait" help:"connect: until the handshake was done; failed: until the attempt ended; wait: from then until the program used the connection"`
	Comm   kern.Comm    `col:"comm,width=16,key" help:"process name"`
	Thread kern.Comm    `col:"thread,width=16,key" help:"thread name"`
	Raddr  kern.Addr    `col:"raddr,width=15,key" help:"remote address"`
	Rport  uint16       `col:"rport,width=5,key" help:"remote port"`
	Proto  kern.Proto   `col:"proto,width=7,key" help:"protocol"`
	Ustack kern.StackID `col:"ustack,as=ustack,key" help:"user stack, innermost function first"`
}

// value is struct lat_value of soconnlat.bpf.c.
type value struct {
	Hist kern.Hist `col:"latency_us,unit=us" help:"how long, as a histogram"`
}

// Tool is soconnlat.
var Tool = &tool.Tool{
	Name: "soconnlat", Layer: tool.Socket, Short: "latency of connects, by user stack",
	Banner:   "Tracing connect latency with user stacks.",
	Doc:      readme,
	Filters:  tool.ByWho | tool.BySock | tool.ByTuple,
	Families: []uint16{unix.AF_INET, unix.AF_INET6},
	Config:   func() any { return &tool.Latency{} },
	Points: []probe.Point{
		{Name: "gone"},
		noticed,
		{Name: "state"},
		{Name: "connect"},
	},
	Views: tool.One(tool.View{
		Output: tool.Snapshot[key, value]{Map: "lats"},
		Show:   "metric comm:PROCESS ustack latency_us",
		Says:   "[{metric}: ]{count} connects, p50 {p50}, p99 {p99} us",
		By:     []string{"comm", "ustack"},
		Always: []string{"metric"},
		Sort:   "latency_us",
	}),
	Formats: []string{"folded"},
}

// noticed is the point of the program's first use of its connection.
var noticed = probe.Point{Name: "noticed", Ways: []probe.Way{
	{Name: "btf", Programs: []string{"send__btf", "recv__btf"}},
	{Name: "raw", Programs: []string{"send__raw", "recv__raw"}},
	{Name: "btf", Programs: []string{"copied__btf"}, Misses: noWait},
	{Name: "raw", Programs: []string{"copied__raw"}, Misses: noWait},
}}

const noWait = "before 6.3: the wait of a non-blocking connect ends with the first bytes read, not with the first sent"
