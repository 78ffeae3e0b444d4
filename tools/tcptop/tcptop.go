// SPDX-License-Identifier: Apache-2.0

// Package tcptop shows the throughput of TCP sessions, refreshed.
package tcptop

import (
	_ "embed"
	"math"
	"os"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	SkipLoad bool `flag:"no-summary" short:"S" help:"leave out the line with the load average"`
}

// entry is struct top_entry of tcptop.bpf.c.
type entry struct {
	kern.Head
	kern.Tuple
	Sk      uint64 `col:"local,head=LADDR,as=local,width=21;remote,head=RADDR,as=remote,width=21" help:"address and port of this end; address and port of the other"`
	TX      uint64 `col:"tx_bytes,head=TX_KB,scale=1024,width=7,sum" help:"payload bytes sent in the interval, each counted once however often it was sent"`
	RX      uint64 `col:"rx_bytes,head=RX_KB,scale=1024,width=7,sum" help:"payload bytes received in the interval"`
	Unsent  uint64 `col:"unsent_bytes,width=7,sum" help:"payload bytes that were written and not yet sent, at the end of the interval"`
	Born    uint64 `col:"-"`
	Total   uint64 `col:"total_bytes,head=KB,scale=1024,width=7,sum" help:"both together"`
	TXRate  uint64 `col:"tx_bytes_s,head=TX_KB/s,scale=1024,width=7,sum" help:"sent per second, over the part of the interval in which the session existed"`
	RXRate  uint64 `col:"rx_bytes_s,head=RX_KB/s,scale=1024,width=7,sum" help:"received per second, likewise"`
	Retrans uint32 `col:"retrans,width=7,sum" help:"segments retransmitted in the interval"`
	SRTT_us uint32 `col:"srtt_us,width=8" help:"smoothed round-trip time"`
}

// session identifies a socket, even if the kernel reuses its address.
type session struct {
	sk    uint64
	tuple [32]byte
	ports uint32
}

func keyOf(e *entry) session {
	s := session{sk: e.Sk, ports: uint32(e.Lport)<<16 | uint32(e.Rport)}
	copy(s.tuple[:], e.Laddr[:])
	copy(s.tuple[16:], e.Raddr[:])
	return s
}

// diff turns counters into the bytes moved since prev. A session that moved
// nothing has no row. A session from an accept queue that is older than the
// tool has none at its first tick either, because it is not known since when
// its counters run.
func diff(prev, cur *entry) bool {
	since := cur.Born
	if prev != nil {
		since = uint64(prev.TS)
		// Counters are read while they change, so they may seem to
		// decrease a little.
		cur.TX -= min(cur.TX, prev.TX)
		cur.RX -= min(cur.RX, prev.RX)
		cur.Retrans -= min(cur.Retrans, prev.Retrans)
	} else if since == 0 {
		return false
	}
	cur.Total = cur.TX + cur.RX
	if span := uint64(cur.TS) - since; since != kern.None && span > 0 && span < math.MaxInt64 {
		cur.TXRate = uint64(float64(cur.TX) / float64(span) * 1e9)
		cur.RXRate = uint64(float64(cur.RX) / float64(span) * 1e9)
	}
	return cur.Total > 0 || cur.Retrans > 0
}

// load is the line above an output, after its time: the load average.
func load(time.Time) string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return "loadavg: " + strings.TrimSpace(string(b))
}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Iter[session, entry]{Point: "poll", Type: "top_entry", Key: keyOf, Diff: diff},
		Show:   "pid comm::12 local remote rx_bytes tx_bytes",
		Says:   "{rx_bytes} bytes in, {tx_bytes} out",
		Sort:   "total_bytes",
		Above:  load,
	}
	if cfg.(*config).SkipLoad {
		v.Above = nil
	}
	return []tool.View{v}
}

// Tool is tcptop.
var Tool = &tool.Tool{
	Name: "tcptop", Layer: tool.TCP, Short: "throughput by TCP session, refreshed",
	Banner:  "Reading TCP byte counters.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp").Or(map[string]string{"udp": "socketio", "unix": "socketio"}),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "poll"}, {Name: "state"}},
	Views:   views,
	Aliases: []tool.Alias{{
		// The networks are BCC's.
		Name: "tcpsubnet", Flags: []string{"--by=raddr", "--subnets=127.0.0.1/32,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,0.0.0.0/0"},
		Short: "TCP throughput by the networks of the peers; --subnets names them",
	}},
}
