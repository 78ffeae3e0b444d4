// SPDX-License-Identifier: Apache-2.0

// Package soconnect shows each connect: who, where to, how long it took, how it
// ended.
package soconnect

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
	tool.Latency
	Syscall bool `flag:"syscall" bpf:"only_syscall" help:"show what the system call returned (In progress), not how the connection ended"`
}

// event is struct connect_event of soconnect.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Latency kern.Nanos  `col:"latency_us,head=LAT(us),div=1000,width=8" help:"from the call to the end of the connection attempt"`
	Result  kern.Result `col:"result,as=result,width=12;errno,as=errno" help:"how it ended; errno by name, absent on success"`
	By      via         `col:"via,width=7" help:"the call that asked for it: syscall or uring"`
	Path    kern.Path   `col:"-"`
	Pad     uint32      `col:"-"`
}

// via is CONNECT_* of soconnect.bpf.c.
type via uint32

func (via) Kind() row.Kind { return row.Text }

func (v *via) Cell(c *row.Cell) {
	c.SetText([...]string{"syscall", "uring"}[*v&1])
}

// unixAddress shows the path of a UNIX socket as its address.
func unixAddress(e *event, r *row.Row) {
	if e.Family != unix.AF_UNIX {
		return
	}
	e.Path.Cell(r.Get("raddr"))
	*r.Get("rport"), *r.Get("lport") = row.Cell{}, row.Cell{}
}

// Tool is soconnect.
var Tool = &tool.Tool{
	Name: "soconnect", Layer: tool.Socket, Short: "connects with address, latency and result",
	Banner:   "Tracing connects.",
	Doc:      readme,
	Filters:  tool.ByWho | tool.BySock | tool.ByTuple,
	Families: []uint16{unix.AF_INET, unix.AF_INET6},
	Config:   func() any { return &config{} },
	Points: []probe.Point{
		{Name: "connect"},
		{Name: "state"},
		{Name: "gone"},
		probe.Uring("uring", "connects by io_uring of other protocols than TCP, and those that fail before a SYN is sent"),
	},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "connect_event", Each: unixAddress},
		Show:   "pid comm:PROCESS family:FAM raddr:ADDRESS rport:PORT latency_us result",
	}),
	Demo: demo,
	Live: live,
}
