// SPDX-License-Identifier: Apache-2.0

// Package tcpstates shows each change of a TCP state and how long the old one
// lasted.
package tcpstates

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Wide bool `flag:"wide" short:"w" help:"room for IPv6 addresses in the table"`
}

// event is struct state_event of tcpstates.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Sk    kern.Ptr   `col:"skaddr,width=16" help:"the socket's address in the kernel; reused after the socket's end"`
	Spent kern.Nanos `col:"duration_ms,head=MS,div=1000000,prec=3,width=9" help:"time in the old state; absent when its start was not seen"`
	Old   kern.State `col:"oldstate,width=11" help:"the state that it left"`
	New   kern.State `col:"newstate,before=-> ,width=14" help:"the state that it is in now"`
	Pad   uint16     `col:"-"`
	Pad2  uint32     `col:"-"`
}

// ends removes addresses that a socket does not have: the remote end of a listener,
// and the local port of a connecting socket that has none yet.
func ends(_ *event, r *row.Row) {
	kern.NoEnd(r, "laddr", "lport")
	kern.NoEnd(r, "raddr", "rport")
}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Stream[event]{Type: "state_event", Each: ends},
		Show:   "skaddr pid comm::10 laddr lport raddr rport oldstate newstate duration_ms",
		Says:   "{oldstate} to {newstate}[ after {duration_ms} ms]",
	}
	if cfg.(*config).Wide {
		v.Show = "time skaddr pid comm::16 laddr::39 lport raddr::39 rport oldstate newstate duration_ms"
	}
	return []tool.View{v}
}

// Tool is tcpstates.
var Tool = &tool.Tool{
	Name: "tcpstates", Layer: tool.TCP, Short: "TCP state changes with time in each state",
	Banner:  "Tracing TCP state changes.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp").Or(map[string]string{"udp": "udplife", "unix": "solife"}),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "state"}},
	Shorts:  map[string]string{"L": "lport", "D": "rport"},
	Views:   views,
	Aliases: []tool.Alias{{
		Name: "tcptracer", Flags: []string{`--where=newstate == "ESTABLISHED" || newstate == "CLOSE"`},
		Short: "TCP connects, accepts and closes",
	}},
}
