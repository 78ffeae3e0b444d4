// SPDX-License-Identifier: Apache-2.0

// Package tcpconnect shows each active TCP connection: the process, the address
// and the result.
package tcpconnect

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
	tool.Latency
	Counting bool `flag:"count-by-destination" short:"c" bpf:"counting" help:"count connections by source and destination instead of showing rows"`
	Relative bool `flag:"timestamp" short:"t" help:"time since the start, like --time rel"`
	UID      bool `flag:"print-uid" short:"U" help:"show the user"`
	DNS      bool `flag:"dns" help:"show the name that was looked up for the address"`

	names names
}

func check(cfg any) error {
	if c := cfg.(*config); c.Counting && c.DNS {
		return tool.Usagef("--dns: -c counts addresses, not names")
	}
	return nil
}

// event is struct connect_event of tcpconnect.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Latency kern.Nanos   `col:"latency_us,div=1000,width=8,age" help:"from the call to the end of the handshake, or of the attempt"`
	Result  kern.Result  `col:"result,as=connect,width=19;errno,as=errno,width=13" help:"how it ended, in the words of connect(2); errno by name, absent on success"`
	Host    word         `col:"host,width=20,key" help:"with --dns, the name of the last lookup that returned this address; absent if there was none"`
	Pending kern.Pending `col:"pending,width=7" help:"true if it has not ended: the latency is its age"`
	Pad     uint32       `col:"-"`
}

// word is a text that is made of other columns.
type word uint32

func (word) Kind() row.Kind    { return row.Text }
func (*word) Cell(c *row.Cell) { *c = row.Cell{} }

// key is struct connect_key of tcpconnect.bpf.c.
type key struct {
	Cgroup  uint64       `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID     kern.ID32    `col:"pid,width=7,key" help:"process"`
	UID     uint32       `col:"uid,width=5,key" help:"user"`
	Comm    kern.Comm    `col:"comm,width=16,key" help:"process name"`
	Laddr   kern.Addr    `col:"laddr,width=15,key" help:"local address"`
	Raddr   kern.Addr    `col:"raddr,width=15,key" help:"remote address"`
	Rport   uint16       `col:"rport,width=5,key" help:"remote port"`
	Family  kern.Family  `col:"family,width=6,key" help:"address family"`
	Netns   kern.ID32    `col:"netns,width=10,key" help:"network namespace, by inode"`
	Pending kern.Pending `col:"pending,width=7" help:"true for connections that have not ended at the end of the interval"`
	Pad     uint32       `col:"-"`
}

// value is struct connect_count of tcpconnect.bpf.c.
type value struct {
	Count  uint64 `col:"count,head=CONNECTS,width=8,sum" help:"connections that were attempted"`
	Failed uint64 `col:"failed,width=6,sum" help:"those that failed"`
}

// unknown removes the local end of a connect that failed at once.
func unknown(_ *event, r *row.Row) {
	kern.NoEnd(r, "laddr", "lport")
	kern.NoEnd(r, "raddr", "rport")
}

// uncounted does so for counts, which have no local ports.
func uncounted(_ *key, _ *value, r *row.Row) {
	kern.NoEnd(r, "laddr", "")
	kern.NoEnd(r, "raddr", "rport")
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	if c.Counting {
		return []tool.View{{
			Output: tool.Snapshot[key, value]{Map: "counts", Each: uncounted},
			Show:   "comm laddr:SADDR raddr:DADDR rport:DPORT count failed pending",
			Says:   "{count} connects, {failed} failed",
			By:     []string{"laddr", "raddr", "rport"},
			Merge:  true, // an address that is absent may be IPv4's or IPv6's
			Sort:   "count",
		}}
	}
	show := "time pid comm ip laddr:SADDR raddr:DADDR rport:DPORT"
	if c.UID {
		show = "time uid pid comm ip laddr:SADDR raddr:DADDR rport:DPORT"
	}
	v := tool.View{Show: show, Says: "connect[: {result}][ after {latency_us} us][, {host}]", Time: "rel"}
	out := tool.Stream[event]{Type: "connect_event", Each: unknown}
	if c.DNS {
		v.Show += " host"
		v.Points = []probe.Point{{Name: "names_end"}, {Name: "names"}}
		out.Notices = tool.Notice[answer]{Type: "dns_answer", Do: c.names.learn}
		out.Each = func(e *event, r *row.Row) {
			unknown(e, r)
			if name := c.names.of(uint32(e.Netns), e.Raddr); name != "" {
				r.Get("host").SetText(name)
			}
		}
	}
	v.Show += " latency_us:LAT(us) result"
	v.Output = out
	return []tool.View{v}
}

// Tool is tcpconnect.
var Tool = &tool.Tool{
	Name: "tcpconnect", Layer: tool.TCP, Short: "active TCP connections, and how they ended",
	Banner:  "Tracing active TCP connections.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp", "mptcp").Or(map[string]string{"udp": "udpconnect", "unix": "soconnect", "sctp": "soconnect"}),
	Config:  func() any { return &config{} },
	Check:   check,
	Points: []probe.Point{
		{Name: "thread"},
		{Name: "gone"},
		{Name: "connect"},
		{Name: "state"},
		probe.Uring("uring", "connects by io_uring that fail before a SYN is sent"),
		tool.Pending,
	},
	Shorts: map[string]string{"P": "rport"},
	Aliases: []tool.Alias{
		{Name: "tcpconnlat", Short: "how long TCP connects take; --min leaves out the quick ones"},
	},
	Views: views,
}
