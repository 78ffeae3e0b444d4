// SPDX-License-Identifier: Apache-2.0

// Package so1stbyte shows how long it takes from a connect to the first byte
// that is read.
package so1stbyte

import (
	_ "embed"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.Latency
	Events bool `flag:"events" bpf:"show_events" help:"show a row for each connection, with separate times for the connect and the wait after it"`
}

// key is struct byte_key of so1stbyte.bpf.c.
type key struct {
	PID     kern.ID32    `col:"pid,width=7,key" help:"process that connected"`
	TID     kern.ID32    `col:"tid,width=7,key" help:"thread id"`
	UID     uint32       `col:"uid,width=5,key" help:"user"`
	Rport   uint16       `col:"rport,width=5,key" help:"remote port"`
	Proto   kern.Proto   `col:"proto,width=7,key" help:"protocol"`
	Comm    kern.Comm    `col:"comm,width=16,key" help:"process name"`
	Thread  kern.Comm    `col:"thread,width=16,key" help:"thread name"`
	Raddr   kern.Addr    `col:"raddr,width=15,key" help:"remote address"`
	Outcome outcome      `col:"outcome,width=13" words:",pending,no byte,no connection" help:"pending; no byte: it ended without one; no connection: no answer to its SYN, or a refusal; absent if a byte was read"`
	Pending kern.Pending `col:"pending,width=7" help:"true for connections that still wait at the end of the interval: latencies are their ages"`
}

// outcome is enum outcome of so1stbyte.bpf.c.
type outcome uint32

// value is struct byte_value of so1stbyte.bpf.c.
type value struct {
	Hist kern.Hist `col:"latency_us,unit=us" help:"from the connect to the first byte read, as a histogram"`
}

// event is struct byte_event of so1stbyte.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Connect kern.Nanos   `col:"connect_us,head=CONNECT(us),div=1000,width=11" help:"from the connect until the connection was established"`
	Wait    kern.Nanos   `col:"wait_us,head=WAIT(us),div=1000,width=8,age" help:"from then until the first byte was read"`
	Total   kern.Nanos   `col:"latency_us,head=TOTAL(us),div=1000,width=9,age" help:"both together; if no byte came, the age or duration of the connection"`
	Outcome outcome      `col:"outcome,width=13" words:",pending,no byte,no connection" help:"pending; no byte: it ended without one; no connection: no answer to its SYN, or a refusal; absent if a byte was read"`
	Pending kern.Pending `col:"pending,width=7" help:"true if it still waits: the times are its age"`
}

// ends leaves out the port that a raw socket does not have.
func ends(_ *event, r *row.Row) { kern.NoEnd(r, "laddr", "lport") }

func views(cfg any) []tool.View {
	if cfg.(*config).Events {
		return []tool.View{{
			Output: tool.Stream[event]{Type: "byte_event", Each: ends},
			Show:   "pid comm:PROCESS raddr:ADDRESS rport:PORT connect_us wait_us latency_us outcome",
			Says:   "first byte after {latency_us} us[: {outcome}]",
		}}
	}
	return []tool.View{{
		Output: tool.Snapshot[key, value]{Map: "waits"},
		Show:   "comm:PROCESS proto rport outcome latency_us",
		Says:   "[port {rport}: ]{count} first bytes[, {outcome}], p50 {p50}, p99 {p99} us",
		By:     []string{"comm", "proto", "rport"},
		Sort:   "latency_us",
	}}
}

// release is the end of sockets other than TCP.
var release = probe.Point{
	Name: "release", Optional: true, Misses: "the end of sockets other than TCP: they take up room until a new socket replaces them",
	Ways: []probe.Way{
		{Name: "cgroup", Programs: []string{"release__cgroup"}},
		{Name: "fentry", Programs: []string{"release__fentry"}},
		{Name: "kprobe", Programs: []string{"release__kprobe"}},
	},
}

// Tool is so1stbyte.
var Tool = &tool.Tool{
	Name: "so1stbyte", Layer: tool.Socket, Short: "time from a connect to the first byte read",
	Banner:   "Tracing connects until the first byte is read.",
	Doc:      readme,
	Filters:  tool.ByWho | tool.BySock | tool.ByTuple,
	Families: []uint16{unix.AF_INET, unix.AF_INET6},
	Config:   func() any { return &config{} },
	Points:   slices.Concat([]probe.Point{{Name: "gone"}, release}, family.SockRecv, []probe.Point{{Name: "connect"}, {Name: "state"}, tool.Pending}),
	Views:    views,
}
