// SPDX-License-Identifier: Apache-2.0

// Package tcpnagle shows whether Nagle's algorithm is on, and how long it held
// writes.
package tcpnagle

import (
	_ "embed"
	"strings"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Xmit bool `flag:"xmit" help:"like the book's tool, count calls of tcp_write_xmit by their flags, and blocked_us; needs function tracing"`
}

// state is the bits of tcp_sock.nonagle.
type state uint32

func (state) Kind() row.Kind { return row.Text }

func (s *state) Cell(c *row.Cell) {
	var on []string
	for i, name := range []string{"OFF", "CORK", "PUSH"} {
		if *s>>i&1 != 0 {
			on = append(on, name)
		}
	}
	if len(on) == 0 {
		on = []string{"ON"}
	}
	c.SetText(strings.Join(on, "|"))
}

// metric is enum metric of tcpnagle.bpf.c.
type metric uint32

// key is struct send_key of tcpnagle.bpf.c.
type key struct {
	Laddr kern.Addr `col:"laddr,width=15,key" help:"local address"`
	Raddr kern.Addr `col:"raddr,width=15,key" help:"remote address"`
	Comm  kern.Comm `col:"comm,width=16,key" help:"process name"`
	PID   kern.ID32 `col:"pid,width=7,key" help:"process"`
	UID   uint32    `col:"uid,width=5,key" help:"user"`
	Lport uint16    `col:"lport,width=5,key" help:"local port"`
	Rport uint16    `col:"rport,width=5,key" help:"remote port"`
	State state     `col:"state,head=NAGLE,width=8,key" help:"ON: Nagle is on; OFF: TCP_NODELAY; CORK: TCP_CORK; with --xmit also PUSH"`
	Netns kern.ID32 `col:"netns,width=10,key" help:"network namespace, by inode"`
	Pad   uint32    `col:"-"`
}

// heldKey is struct held_key of tcpnagle.bpf.c.
type heldKey struct {
	Send   key    `col:",inline"`
	Metric metric `col:"metric,width=6" words:"nagle,cork,cwnd,rwnd,other" help:"what held the data: nagle, cork, the congestion window (cwnd), the receiver's (rwnd), or pacing and queues (other)"`
	Pad    uint32 `col:"-"`
}

// held is struct held_value of tcpnagle.bpf.c.
type held struct {
	Held kern.Hist `col:"held_us,unit=us" help:"from the write to the packet that carried its first byte, as a histogram"`
}

// blocked is the same memory with --xmit.
type blocked struct {
	Held kern.Hist `col:"blocked_us,unit=us" help:"from a call of tcp_write_xmit that returned true to the next one that returned false, as a histogram"`
}

func views(cfg any) []tool.View {
	by := []string{"comm", "state"}
	if cfg.(*config).Xmit {
		points := []probe.Point{{Name: "xmit"}}
		return []tool.View{
			{Name: "xmit", Points: points, Output: tool.Snapshot[key, kern.Count]{Map: "xmits"}, Show: "comm state count", Says: "[{state}: ]{count} segments sent", By: by, Sort: "count"},
			{Name: "blocked", Points: points, Output: tool.Snapshot[key, blocked]{Map: "blocks"}, Show: "comm state blocked_us", Says: "[{state}: ]{count} sends blocked, p50 {p50}, p99 {p99} us"},
		}
	}
	points := []probe.Point{
		{Name: "gone"}, {Name: "out"},
		{Name: "send", Ways: []probe.Way{
			{Name: "btf", Programs: []string{"sent__btf"}},
			{Name: "raw", Programs: []string{"sent__raw"}},
			{Name: "fexit", Programs: []string{"call__fexit__tcp"}},
			{Name: "kprobe", Programs: []string{"call__kprobe__tcp*"}},
		}},
	}
	return []tool.View{
		{Name: "sends", Points: points, Output: tool.Snapshot[key, kern.Count]{Map: "sends"}, Show: "comm state count bytes", Says: "[{state}: ]{count} sends, {bytes} bytes", By: by, Sort: "count"},
		{Name: "held", Points: points, Output: tool.Snapshot[heldKey, held]{Map: "helds"}, Show: "comm state metric held_us", Says: "[{state}: ]{count} segments held, p50 {p50}, p99 {p99} us"},
	}
}

// Tool is tcpnagle.
var Tool = &tool.Tool{
	Name: "tcpnagle", Layer: tool.TCP, Short: "sends by state of Nagle, and how long it held them",
	Banner:  "Tracing TCP sends.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{} },
	Views:   views,
}
