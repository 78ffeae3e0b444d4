// SPDX-License-Identifier: Apache-2.0

// Package tcpwin shows the congestion window and the send buffer of TCP
// sockets over time.
package tcpwin

import (
	_ "embed"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Summary bool   `flag:"summary" bpf:"counting" help:"count events by socket instead of showing rows"`
	Sock    uint64 `flag:"sock" bpf:"only_sock" help:"only the socket at this kernel address: 0x and the value of column skaddr"`
	Busiest uint32 `flag:"busiest" help:"how many sockets -o svg and png draw: those whose lines move most (default 1)"`
	Start   uint64 `bpf:"start_ns"`
}

// newConfig reads the clock; time_us counts from then.
func newConfig() any {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return &config{}
	}
	return &config{Start: uint64(now.Nano())}
}

// what is enum win of tcpwin.bpf.c.
type what uint32

// event is struct win_event of tcpwin.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Sk         kern.Ptr  `col:"skaddr,prefix=0x,width=18" help:"the socket's address in the kernel, reused after its end; sock is a stable id"`
	Since      uint64    `col:"time_us,div=1000,width=10" help:"since the start"`
	Event      what      `col:"event,width=7,key" words:"rcv,retrans,new" help:"rcv: a segment came in; retrans: one was sent again; new: the connection is established"`
	Cwnd       uint32    `col:"snd_cwnd,width=8" help:"congestion window, in segments"`
	Ssthresh   uint32    `col:"snd_ssthresh,width=12" help:"slow start threshold, in segments"`
	Sndbuf     int32     `col:"sk_sndbuf,width=9" help:"size of the send buffer"`
	WmemQueued int32     `col:"sk_wmem_queued,width=14" help:"bytes queued in it, including the kernel's overhead"`
	SRTT_us    uint32    `col:"srtt_us,width=8" help:"smoothed round-trip time"`
	RcvWnd     uint32    `col:"rcv_wnd,width=8" help:"receive window that is offered to the peer, in bytes"`
	Inflight   uint32    `col:"inflight,width=8" help:"segments under way"`
	Cong       kern.Comm `col:"cong,width=6" help:"congestion control"`
}

// key is struct win_key of tcpwin.bpf.c.
type key struct {
	Sk    kern.Ptr  `col:"skaddr,prefix=0x,width=18,key" help:"the socket's address in the kernel"`
	Laddr kern.Addr `col:"laddr,width=15,key" help:"local address"`
	Raddr kern.Addr `col:"raddr,width=15,key" help:"remote address"`
	Lport uint16    `col:"lport,width=5,key" help:"local port"`
	Rport uint16    `col:"rport,width=5,key" help:"remote port"`
	PID   kern.ID32 `col:"pid,width=7,key" help:"process"`
	Comm  kern.Comm `col:"comm,width=16,key" help:"process name"`
}

// value is struct win_count of tcpwin.bpf.c.
type value struct {
	Count   uint64 `col:"count,width=8,sum" help:"events"`
	Rcv     uint64 `col:"rcv,width=8,sum" help:"segments that came in"`
	Retrans uint64 `col:"retrans,width=7,sum" help:"packets that were sent again"`
	Fresh   uint64 `col:"new,width=3,sum" help:"connections established"`
}

// ends removes the addresses from all rows except those of new connections.
func ends(r *row.Row) {
	if r.Get("event").S == "new" {
		return
	}
	for _, id := range []string{"laddr", "lport", "raddr", "rport"} {
		*r.Get(id) = row.Cell{}
	}
}

func views(cfg any) []tool.View {
	if cfg.(*config).Summary {
		return []tool.View{{
			Output: tool.Snapshot[key, value]{Map: "counts"},
			Show:   "skaddr:sock laddr:laddr lport:lport raddr:raddr rport:rport count:count rcv:rcv retrans:retrans new:new",
			Says:   "{count} events, {retrans} retransmissions",
			By:     []string{"skaddr", "laddr", "lport", "raddr", "rport"},
			Sort:   "count",
		}}
	}
	return []tool.View{{
		Output: tool.Stream[event]{Type: "win_event"},
		Show: "event:event skaddr:sock time_us:time_us snd_cwnd:snd_cwnd snd_ssthresh:snd_ssthresh sk_sndbuf:sk_sndbuf " +
			"sk_wmem_queued:sk_wmem_queued laddr:laddr lport:lport raddr:raddr rport:rport",
		Says: "{event}: window {snd_cwnd}, threshold {snd_ssthresh}, {sk_wmem_queued} bytes queued",
		Book: ends,
	}}
}

// figure is the book's Figure 10-5: window and send buffer over time.
func figure(cfg any) tool.Plot {
	return tool.Plot{
		// Addresses are reused, and not all kernels have cookies.
		Key: []string{"skaddr", "laddr", "lport", "raddr", "rport"}, Title: []string{"comm", "laddr", "lport", "raddr", "rport", "cong"}, X: "time_us",
		Panels: [][]string{{"snd_cwnd"}, {"sk_wmem_queued", "sk_sndbuf"}}, Units: []string{"segments", "bytes"},
		Mark: "event", Marked: "retrans",
		Busiest: int(cfg.(*config).Busiest),
	}
}

// Tool is tcpwin.
var Tool = &tool.Tool{
	Name: "tcpwin", Layer: tool.TCP, Short: "congestion window and send buffer over time",
	Banner:  "Tracing TCP windows.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  newConfig,
	Points:  []probe.Point{{Name: "state"}, {Name: "rcv"}, {Name: "retrans"}},
	Views:   views,
	Formats: []string{"book", "svg", "png"},
	Plot:    figure,
}
