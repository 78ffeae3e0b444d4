// SPDX-License-Identifier: Apache-2.0

// Package tcplife shows each TCP session at its end: the process, the peer, the
// bytes and the duration.
package tcplife

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
	Wide bool `flag:"wide" short:"w" help:"room for IPv6 addresses in the table"`
}

// event is struct life_event of tcplife.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	TX          uint64       `col:"tx_bytes,head=TX_KB,scale=1024,width=6,sum" help:"payload bytes sent, each counted once however often it was sent"`
	RX          uint64       `col:"rx_bytes,head=RX_KB,scale=1024,width=6,sum" help:"payload bytes received"`
	Unsent      uint64       `col:"unsent_bytes,width=7,sum" help:"payload bytes that were written and never sent"`
	Duration    kern.Nanos   `col:"duration_ms,head=MS,div=1000000,prec=2,width=9" help:"from the first state seen to the close; absent for sessions older than the tool"`
	Established kern.Nanos   `col:"established_ms,div=1000000,prec=2,width=9" help:"from the handshake's end to the close"`
	Seen        kern.Nanos   `col:"seen_ms,div=1000000,prec=2,width=9" help:"how long the tool watched the session"`
	Retrans     uint32       `col:"retrans,width=7,sum" help:"segments retransmitted"`
	SRTT_us     uint32       `col:"srtt_us,width=8" help:"smoothed round-trip time at the end"`
	Cong        kern.Comm    `col:"cong,width=6" help:"congestion control"`
	State       kern.State   `col:"state_close,width=10;end,width=11" help:"the state it left for CLOSE; how it ended, absent after an orderly close: refused, unreachable, unanswered and aborted never became sessions"`
	Reset       kern.Reset   `col:"reset_by" help:"who reset it: local or remote; absent after an orderly close"`
	Error       kern.Errno16 `col:"errno,width=13" help:"the socket's error, if it had one"`
	Pad         uint32       `col:"-"`
}

// end says how a session ended if it was not closed by both ends.
func end(e *event, r *row.Row) {
	c := r.Get("end")
	switch never := e.State == kern.StateSynSent || e.State == kern.StateSynRecv; {
	case never && e.Error == kern.Errno16(unix.ECONNREFUSED):
		c.SetText("refused")
	case never && (e.Error == kern.Errno16(unix.EHOSTUNREACH) || e.Error == kern.Errno16(unix.ENETUNREACH)):
		c.SetText("unreachable")
	case never && e.Error == kern.Errno16(unix.ETIMEDOUT):
		c.SetText("unanswered")
	case never:
		c.SetText("aborted")
	case e.Reset == kern.ResetRemote:
		c.SetText("reset-peer")
	case e.Reset == kern.ResetLocal:
		c.SetText("reset")
	case e.Error == kern.Errno16(unix.ETIMEDOUT):
		c.SetText("timeout")
	case e.Error != 0:
		c.SetText("error")
	default:
		*c = row.Cell{}
	}
}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Stream[event]{Type: "life_event", Each: end},
		Show:   "pid comm laddr lport raddr rport tx_bytes rx_bytes duration_ms end",
		Says:   "[lived {duration_ms} ms, ]{tx_bytes} bytes out, {rx_bytes} in[, {end}]",
	}
	if cfg.(*config).Wide {
		v.Show = "pid comm laddr::39 lport raddr::39 rport tx_bytes rx_bytes duration_ms end"
	}
	return []tool.View{v}
}

// Tool is tcplife.
var Tool = &tool.Tool{
	Name: "tcplife", Layer: tool.TCP, Short: "TCP sessions with lifespan and bytes",
	Banner:  "Tracing TCP sessions.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp").Or(map[string]string{"udp": "udplife", "unix": "solife"}),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "state"}, {Name: "reset", Optional: true, Misses: "who reset a session"}},
	Shorts:  map[string]string{"L": "lport", "D": "rport"},
	Views:   views,
	Formats: []string{"dot"},
	Graph: &tool.Graph{
		From: []string{"comm", "laddr"}, To: []string{"raddr", "rport"},
		Sum: []string{"tx_bytes", "rx_bytes"}, Unit: "sessions",
	},
}
