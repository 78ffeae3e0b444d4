// SPDX-License-Identifier: Apache-2.0

// Package tcpcong shows how long TCP connections are in each congestion state.
package tcpcong

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Dist bool `flag:"dist" bpf:"dist" help:"histograms of each stay in a state, instead of times by connection"`
}

// state is icsk_ca_state of the kernel.
type state uint32

// open is the normal state.
const open state = 0

// entry is struct cong_entry of tcpcong.bpf.c.
type entry struct {
	kern.Head
	kern.Tuple
	Sk       uint64     `col:"-"`
	Begin    uint64     `col:"-"`
	Open     kern.Nanos `col:"open_ms,div=1000000,prec=1,width=8,sum" help:"time in the normal state"`
	Disorder kern.Nanos `col:"disorder_ms,head=DISORD_MS,div=1000000,prec=1,width=9,sum" help:"time in disorder: acknowledgements showed a gap, by a loss or a changed order"`
	CWR      kern.Nanos `col:"cwr_ms,div=1000000,prec=1,width=6,sum" help:"time in cwr: the kernel reduced the congestion window, after an ECN mark or because a queue of this machine was full"`
	Recovery kern.Nanos `col:"recovery_ms,head=RECOV_MS,div=1000000,prec=1,width=8,sum" help:"time in recovery: the kernel retransmitted segments that acknowledgements showed to be lost"`
	Loss     kern.Nanos `col:"loss_ms,div=1000000,prec=1,width=7,sum" help:"time in loss: the kernel retransmitted segments after a timeout"`
	Troubled kern.Nanos `col:"troubled_ms,div=1000000,prec=1,width=11,sum" help:"time in all states but open"`
	Changes  uint32     `col:"changes,head=CHG,width=4,sum" help:"changes of the state"`
	State    state      `col:"ca_state,width=8" words:"open,disorder,cwr,recovery,loss" help:"state at the end of the interval or of the connection"`
}

// conn identifies a connection, even if the kernel reuses the memory of its socket.
type conn struct{ sk, begin uint64 }

// diff converts times since the beginning to times since prev. It returns false for a
// connection that was open all the time: it has no row.
func diff(prev, cur *entry) bool {
	if prev != nil {
		cur.Open -= min(cur.Open, prev.Open)
		cur.Disorder -= min(cur.Disorder, prev.Disorder)
		cur.CWR -= min(cur.CWR, prev.CWR)
		cur.Recovery -= min(cur.Recovery, prev.Recovery)
		cur.Loss -= min(cur.Loss, prev.Loss)
		cur.Changes -= min(cur.Changes, prev.Changes)
	}
	cur.Troubled = cur.Disorder + cur.CWR + cur.Recovery + cur.Loss
	return cur.Troubled > 0 || cur.Changes > 0 || cur.State != open
}

// key is struct cong_key of tcpcong.bpf.c.
type key struct {
	TCP   kern.TCPKey `col:",inline"`
	State state       `col:"ca_state,width=8,key" words:"open,disorder,cwr,recovery,loss" help:"congestion state"`
	Pad   uint32      `col:"-"`
}

// value is struct cong_value of tcpcong.bpf.c.
type value struct {
	Hist kern.Hist `col:"stay_us,unit=us" help:"duration of each stay in the state, as a histogram"`
}

func views(cfg any) []tool.View {
	if cfg.(*config).Dist {
		return []tool.View{{
			Output: tool.Snapshot[key, value]{Map: "stays"},
			Show:   "stay_us",
			Says:   "{count} stays in {ca_state}, p50 {p50}, p99 {p99} us",
			By:     []string{"ca_state"},
			Always: []string{"ca_state"},
			Sort:   "stay_us",
		}}
	}
	return []tool.View{{
		Points: []probe.Point{{Name: "poll"}},
		Output: tool.Iter[conn, entry]{
			Point: "poll", Type: "cong_entry", Diff: diff,
			Key: func(e *entry) conn { return conn{e.Sk, e.Begin} },
		},
		Show: "comm::10 lport raddr+rport::21 open_ms disorder_ms cwr_ms recovery_ms loss_ms changes",
		Says: "{open_ms} ms open, {disorder_ms} disorder, {cwr_ms} cwr, {recovery_ms} recovery, {loss_ms} loss",
		Sort: "troubled_ms",
	}}
}

// Tool is tcpcong.
var Tool = &tool.Tool{
	Name: "tcpcong", Layer: tool.TCP, Short: "time of TCP connections in each congestion state",
	Banner:  "Tracing TCP congestion states.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "state"}, {Name: "change"}},
	Views:   views,
}
