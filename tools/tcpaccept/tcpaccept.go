// SPDX-License-Identifier: Apache-2.0

// Package tcpaccept shows each passive TCP connection when it is accepted.
package tcpaccept

import (
	_ "embed"
	"fmt"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct accept_event of tcpaccept.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Queued  kern.Nanos `col:"queued_us,head=WAIT_US,div=1000,width=8" help:"time in the accept queue; absent when the connection is older than the tool"`
	Backlog backlog    `col:"backlog,width=9" help:"of the listener: how many connections still wait, and how many can"`
}

// backlog has the limit in its upper half and the length in its lower half.
type backlog uint64

func (backlog) Kind() row.Kind { return row.Text }

func (b *backlog) Cell(c *row.Cell) {
	if uint64(*b) == kern.None {
		*c = row.Cell{}
		return
	}
	c.SetText(fmt.Sprintf("%d/%d", uint32(*b), *b>>32))
}

// Tool is tcpaccept.
var Tool = &tool.Tool{
	Name: "tcpaccept", Layer: tool.TCP, Short: "passive TCP connections, and how long they waited",
	Banner:  "Tracing passive TCP connections.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp", "mptcp").Or(map[string]string{"unix": "soaccept", "sctp": "soaccept"}),
	Points: []probe.Point{
		{Name: "thread"},
		{Name: "accept"},
		{Name: "state"},
		probe.Uring("uring", "connections accepted by io_uring"),
	},
	Shorts: map[string]string{"P": "lport"},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "accept_event"},
		Show:   "time pid comm::10 raddr rport laddr lport queued_us",
		Says:   "accept[ after {queued_us} us in the queue]",
	}),
}
