// SPDX-License-Identifier: Apache-2.0

// Package solife shows each session of a socket at its end: the process, the
// peer, the bytes each way and the duration.
package solife

import (
	_ "embed"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct life_event of solife.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	TX       uint64     `col:"tx_bytes,head=TX_B,width=8,sum" help:"bytes that its processes wrote"`
	RX       uint64     `col:"rx_bytes,head=RX_B,width=8,sum" help:"bytes that its processes read"`
	Duration kern.Nanos `col:"duration_ms,head=MS,div=1000000,prec=2,width=9" help:"from the start of the session until its last descriptor is closed; absent for sessions older than the tool"`
	Seen     kern.Nanos `col:"seen_ms,div=1000000,prec=2,width=9" help:"how long the tool watched the session"`
	Type     sockType   `col:"type,width=9" help:"stream, dgram, seqpacket or raw"`
	Peerless uint8      `col:"-"`
	Pad      [5]uint8   `col:"-"`
	Path     kern.Path  `col:"-"`
	Peer     kern.Path  `col:"-"`
}

// sockType is the type of a socket, shown by name.
type sockType uint16

var sockTypes = map[sockType]string{
	unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "dgram", unix.SOCK_RAW: "raw", unix.SOCK_SEQPACKET: "seqpacket",
}

func (sockType) Kind() row.Kind { return row.Text }

func (t *sockType) Cell(c *row.Cell) {
	name, ok := sockTypes[*t]
	if !ok {
		name = strconv.Itoa(int(*t))
	}
	c.SetText(name)
}

// tidy fills in names of UNIX sockets and removes addresses that a row does not
// have.
func tidy(e *event, r *row.Row) {
	if e.Family == unix.AF_UNIX {
		e.Path.Cell(r.Get("laddr"))
		e.Peer.Cell(r.Get("raddr"))
		*r.Get("lport"), *r.Get("rport") = row.Cell{}, row.Cell{}
		return
	}
	kern.NoEnd(r, "laddr", "lport")
	if e.Peerless != 0 {
		*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	}
}

// narrow leaves out the hooks for the end of sockets that the filters exclude.
// Without function tracing, the hook for UNIX sockets runs at every free of
// kernel memory.
func narrow(points []probe.Point, w *tool.Wanted) []probe.Point {
	names := func(f uint16) bool {
		family := w.On&tool.FilterFamily == 0 || slices.Contains(w.Families, f)
		proto := w.On&tool.FilterProto == 0 || slices.ContainsFunc(w.Protos, func(p uint16) bool {
			return (f == unix.AF_UNIX) == (kern.Proto(p).String() == "unix")
		})
		return family && proto && (f != unix.AF_UNIX || w.On&tool.ByTuple == 0)
	}
	local, inet := names(unix.AF_UNIX), names(unix.AF_INET) || names(unix.AF_INET6)
	return slices.DeleteFunc(slices.Clone(points), func(p probe.Point) bool {
		return p.Name == "unixend" && !local || (p.Name == "release" || p.Name == "state") && !inet
	})
}

// Tool is solife.
var Tool = &tool.Tool{
	Name: "solife", Layer: tool.Socket, Short: "sessions of TCP, UDP and UNIX sockets with lifespan and bytes",
	Banner:  "Tracing sessions of sockets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Points: slices.Concat([]probe.Point{
		{Name: "release", Ways: []probe.Way{
			{Name: "cgroup", Programs: []string{"release__cgroup"}},
			{Name: "fentry", Programs: []string{"release__fentry"}},
			{Name: "kprobe", Programs: []string{"release__kprobe"}},
		}},
		{Name: "unixend", Ways: []probe.Way{
			{Name: "fentry", Programs: []string{"unixend__fentry"}},
			{Name: "kprobe", Programs: []string{"unixend__kprobe"}},
			{Name: "slab", Programs: []string{"unixend__slab"}, Nested: true,
				Misses: "nothing, but every free of kernel memory costs a run"},
		}},
		{Name: "state"},
	}, family.SockCalls, family.SockIO),
	Narrow: narrow,
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "life_event", Each: tidy},
		Show:   "time pid comm proto laddr lport raddr rport tx_bytes rx_bytes duration_ms",
		Says:   "[{proto} socket][ lived {duration_ms} ms], {tx_bytes} bytes out, {rx_bytes} in",
	}),
}
