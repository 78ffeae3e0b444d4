// SPDX-License-Identifier: Apache-2.0

// Package flows shows where the time of TCP connections goes.
package flows

import (
	_ "embed"
	"time"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Closed bool          `flag:"closed" help:"a row for each connection when it ends, with all its time"`
	All    bool          `flag:"all" help:"also show connections that did nothing in the interval"`
	Exact  bool          `flag:"exact" help:"see sends and arrivals too: waits for the send buffer, and unread data to the microsecond"`
	Tick   time.Duration `bpf:"tick_ns"`
	Turns  bool          `bpf:"count_turns"`
	view   string
}

// The views.
const (
	services    = "services"
	connections = "connections"
	both        = tool.AllViews
)

// SetView chooses one view, or both.
func (c *config) SetView(name string) error {
	if c.Closed && (name == services || name == both) {
		return tool.Usagef("--closed: connections end, services do not: leave out --view %s", name)
	}
	if c.view = name; name == "" {
		c.view = services
	}
	if c.Closed {
		c.view = connections
	}
	if c.view != services && c.view != connections && c.view != both {
		return tool.Usagef("--view %s: one of %s, %s, %s", name, services, connections, both)
	}
	c.Turns = c.view != connections
	return nil
}

func newConfig() any { return &config{Tick: kern.Jiffy()} }

// event is struct flow_event of flows.bpf.c: a connection.
type event struct {
	kern.Head
	kern.Tuple
	Part  parts `col:",inline"`
	About about `col:",inline"`
}

// about is struct flow_about.
type about struct {
	Sk         where      `col:"where,width=40" help:"the largest parts of the time, in percent"`
	Service    uint64     `col:"-"`
	Born       kern.Nanos `col:"wall_ms,head=MS,div=1000000,prec=1,width=8,sum" help:"time of the connection within the interval; the parts add up to it"`
	Turns      kern.Opt   `col:"turns,width=6,sum" help:"exchanges of a request and its answer; absent where both directions overlap"`
	TX         uint64     `col:"tx_bytes,head=TX_KB,scale=1024,width=7,sum" help:"payload bytes sent"`
	RX         uint64     `col:"rx_bytes,head=RX_KB,scale=1024,width=7,sum" help:"payload bytes received"`
	Overlaps   uint32     `col:"overlaps,width=8,sum" help:"times that data came while data that had been sent before were still under way: pipelining, HTTP/2, streams"`
	Fast       uint32     `col:"retrans_fast,width=12,sum" help:"segments sent again because later ones had arrived"`
	TLP        uint32     `col:"retrans_tlp,width=11,sum" help:"segments sent again to probe for the loss of the last one"`
	RTO        uint32     `col:"retrans_rto,width=11,sum" help:"segments sent again after a timeout"`
	Syn        uint32     `col:"retrans_syn,width=11,sum" help:"SYNs sent again"`
	SRTT_us    uint32     `col:"srtt_us,width=8" help:"smoothed round-trip time"`
	Min_RTT_us kern.ID32  `col:"min_rtt_us,width=10" help:"smallest round-trip time of the last minutes"`
	Role       role       `col:"role,width=7" help:"client: it connected; server: it was accepted"`
	Older      flag       `col:"older,width=5" help:"true if the connection is older than the tool: its time counts from the start of the tool"`
	Closed     flag       `col:"closed,width=6" help:"true if it has ended"`
}

// flag is true or absent.
type flag uint8

func (flag) Kind() row.Kind { return row.Bool }

func (f *flag) Cell(c *row.Cell) {
	*c = row.Cell{}
	if *f != 0 {
		*c = row.Cell{Kind: row.Bool, N: 1}
	}
}

// role is enum flow_role of flow.h.
type role uint16

const (
	client role = 1
	server role = 2
)

func (role) Kind() row.Kind { return row.Text }

func (o role) String() string { return [...]string{"unknown", "client", "server", "unknown"}[o&3] }

func (o *role) Cell(c *row.Cell) { c.SetText(o.String()) }

// overlapping reports whether requests and answers overlap: pipelining, HTTP/2,
// or streams both ways. Such a connection has no turns.
func overlapping(turns, overlaps uint64) bool { return overlaps*10 > turns }

// whole is the row of a connection that has ended: all its time.
func whole(e *event, r *row.Row) {
	r.Get("wall_ms").SetUint(uint64(e.TS) - uint64(e.About.Born))
	finish(e, r)
}

// finish fills in the columns that are derived from others.
func finish(e *event, r *row.Row) {
	r.Get("where").SetText(e.Part.String())
	if overlapping(uint64(e.About.Turns), uint64(e.About.Overlaps)) {
		*r.Get("turns") = row.Cell{}
	}
}

const connectionTable = "pid comm::12 laddr+lport::21 raddr+rport::21 role turns wall_ms where"

func views(cfg any) []tool.View {
	c := cfg.(*config)
	points := []probe.Point{walkPoint}
	if c.Closed {
		points = nil
	}
	if c.Exact {
		points = append(points, exactPoints...)
	}
	walk := tool.Iter[session, event]{Point: walkPoint.Name, Type: "flow_event", Key: keyOf, Diff: diff(c.All), Keep: keep, Each: finish}
	all := []tool.View{{
		Name: services, Points: points,
		Output: tool.Gather[session, event, turns, service]{Iter: walk, Map: "turns", Rows: newDirectory().rows},
		Show:   "service conns turns_s p50_us p99_us where",
		Says:   "{service}: [{turns} turns, half of them below {p50_us} us, ]{where}",
		Sort:   "conns",
	}, {
		Name: connections, Points: points,
		Output: tool.Moved[session, event]{Iter: walk},
		Show:   connectionTable,
		Says:   "{wall_ms} ms as {role}: {where}",
		Sort:   "wall_ms",
	}}
	switch {
	case c.Closed:
		all = all[1:]
		all[0].Output, all[0].Sort = tool.Stream[event]{Type: "flow_event", Each: whole}, ""
	case c.view == services:
		all = all[:1]
	case c.view == connections:
		all = all[1:]
		all[0].Output = walk
	}
	return all
}

// picture is the parts over time.
func picture(any) tool.Plot {
	p := tool.Plot{
		Key:    []string{"comm", "netns", "cgroup", "laddr", "lport", "raddr", "rport", "sock"},
		Title:  []string{"comm", "laddr", "lport", "raddr", "rport"},
		Panels: make([][]string, 1), Units: []string{"% of the time"}, Shares: true, Ended: "closed", Busiest: 6,
	}
	for _, name := range partNames {
		p.Panels[0] = append(p.Panels[0], name+"_ms")
	}
	return p
}

var walkPoint = probe.Point{Name: "walk"}

// exactPoints are the points of --exact.
var exactPoints = []probe.Point{
	{Name: "arrival", Optional: true, Misses: "when data came: unread time is exact to a jiffy", Needed: func(k *probe.Kernel) bool { return k.Args("sk_data_ready") != nil }},
	{Name: "sending", Optional: true, Misses: "when a blocking send began: it is exact to a jiffy", Needed: func(k *probe.Kernel) bool { return k.Args("tcp_sendmsg_locked") != nil }},
	{Name: "send", Optional: true, Misses: "sends: waits for the send buffer count as network"},
	{Name: "received", Optional: true, Misses: "reads of MPTCP connections: their time is unknown", Needed: func(k *probe.Kernel) bool { return k.Args("sock_recv_length") != nil }},
}

// Tool is flows.
var Tool = &tool.Tool{
	Name: "flows", Layer: tool.TCP, Short: "where the time of TCP connections goes",
	Banner:  "Watching TCP connections.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp").Or(map[string]string{"udp": "udplife", "unix": "solife"}),
	Config:  newConfig,
	Points: []probe.Point{
		{Name: "state"},
		{Name: "read"},
		{Name: "retrans", Optional: true, Misses: "lost segments: their time counts as network"},
		{Name: "recovered", Optional: true, Misses: "when a loss was repaired: all of the message's time after it counts as loss"},
	},
	Views:   views,
	Names:   true,
	Formats: []string{"svg", "png"},
	Plot:    picture,
}
