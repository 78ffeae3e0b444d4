// SPDX-License-Identifier: Apache-2.0

// Package superping shows the round-trip time of ICMP echoes, measured in the
// kernel: from when the device gets the request until the reply arrives there.
package superping

import (
	_ "embed"
	"fmt"
	"net/netip"
	"time"

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
	Lost time.Duration `flag:"lost" help:"an echo without a reply for this long is lost"`
}

// event is struct ping_event of superping.bpf.c.
type event struct {
	kern.Head
	Laddr   kern.Addr    `col:"laddr,width=15,key" help:"address that asked"`
	Raddr   kern.Addr    `col:"raddr,width=15,key" help:"address that was asked"`
	Sock    kern.ID      `col:"sock" help:"stable id of the socket (its cookie)"`
	RTT     kern.Nanos   `col:"rtt_us,div=1000,width=8,age" help:"from when the device got the request until the reply arrived; absent when it was lost"`
	Ident   uint16       `col:"ident,width=5,key" help:"identifier of the ping"`
	Seq     uint16       `col:"seq,width=5" help:"number of the echo"`
	Family  kern.Family  `col:"family,key;ip,as=ip,width=2,key" help:"address family; version of IP: 4 or 6"`
	Outcome words        `col:"outcome" help:"the time in words, lost, or how long there has been no reply"`
	Pending kern.Pending `col:"pending,width=7" help:"true if there is no reply yet and the echo is not lost yet: the time is its age"`
	Pad     uint32       `col:"-"`
}

// words is text that is made of other columns.
type words uint16

func (words) Kind() row.Kind { return row.Text }

func (*words) Cell(c *row.Cell) { *c = row.Cell{} }

// key and echo are struct echo_key and struct echo.
type key struct {
	Peer       kern.Addr
	Netns      uint32
	Ident, Seq uint16
}

type echo struct {
	Start kern.Mono
	Skb   uint64
	Sock  uint64
	Who   kern.Who
	Laddr kern.Addr
}

func lost(k *key, v *echo, e *event) {
	e.TS, e.Netns, e.Who = kern.MonoNow(), kern.ID32(k.Netns), v.Who
	e.Laddr, e.Raddr, e.Sock = v.Laddr, k.Peer, kern.ID(v.Sock)
	e.RTT, e.Ident, e.Seq = kern.Nanos(kern.None), k.Ident, k.Seq
	e.Family = unix.AF_INET6
	if netip.AddrFrom16(k.Peer).Is4In6() {
		e.Family = unix.AF_INET
	}
}

func outcome(e *event, r *row.Row) {
	if uint64(e.RTT) == kern.None {
		r.Get("outcome").SetText("lost")
		return
	}
	text := fmt.Sprintf("%d us", uint64(e.RTT)/1000)
	if e.Pending != 0 {
		text = "no reply for " + text
	}
	r.Get("outcome").SetText(text)
}

func views(cfg any) []tool.View {
	return []tool.View{{
		Output: tool.Stream[event]{Type: "ping_event", Each: outcome, Late: tool.Overdue[key, echo, event]{
			Map: "echoes", After: cfg.(*config).Lost, Row: lost,
			Since: func(e *echo) kern.Mono { return e.Start },
		}},
		Show: "time pid comm ip raddr ident seq rtt_us",
		Says: "ping {ident} seq {seq}: {outcome}",
		Line: "IPv{ip} ping to {raddr}, ID {ident} seq {seq}: {outcome} ({comm} {pid})",
	}}
}

const later = "nothing, but the time includes the way from the device to ICMP"

// Tool is superping.
var Tool = &tool.Tool{
	Name: "superping", Layer: tool.IP, Short: "ICMP echo round-trip times, measured in the kernel",
	Banner:  "Tracing ICMP echo request latency.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns | tool.FilterAddr | tool.FilterLaddr | tool.FilterRaddr | tool.FilterIP4 | tool.FilterIP6,
	Config:  func() any { return &config{Lost: 3 * time.Second} },
	Points: []probe.Point{
		family.Opener,
		{Name: "reply", Ways: []probe.Way{
			{Name: "btf", Programs: []string{"reply__btf__*"}},
			{Name: "raw", Programs: []string{"reply__raw__*"}},
			{Name: "fentry", Programs: []string{"reply__fentry__*"}, Misses: later},
			{Name: "kprobe", Programs: []string{"reply__kprobe__*"}, Misses: later},
		}},
		{Name: "request"},
		tool.Pending,
	},
	Views: views,
}
