// SPDX-License-Identifier: Apache-2.0

// Package soconnect shows each connect: the process, the address, the latency
// and the result.
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
	Errors  bool `flag:"errors" bpf:"only_errors" help:"show only connects that failed, calls of socket(2) that failed, and what is pending"`
}

// event is struct connect_event of soconnect.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Latency kern.Nanos   `col:"latency_us,head=LAT(us),div=1000,width=8,age" help:"from the call to the end of the connection attempt"`
	Result  kern.Result  `col:"result,as=connect,width=19;errno,as=errno,width=13" help:"how it ended, in the words of connect(2); errno by name, absent on success"`
	By      via          `col:"via,width=7" words:"syscall,uring,send,socket" help:"how it was requested: syscall, uring, or send (MSG_FASTOPEN); socket: no socket was made (--errors)"`
	Path    kern.Path    `col:"-"`
	Pending kern.Pending `col:"pending,width=7" help:"true if it has not ended: the latency is its age"`
}

// via is enum connect_by of soconnect.bpf.c.
type via uint32

// views are the connects, and with --errors the calls of socket(2) that failed.
func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Stream[event]{Type: "connect_event", Each: ends},
		Show:   "pid comm:PROCESS family:FAM:5 proto raddr:ADDRESS rport:PORT latency_us result",
		Says:   "connect: {result}[ after {latency_us} us]",
	}
	if cfg.(*config).Errors {
		v.Points = []probe.Point{{Name: "socket"}, {Name: "asked", Needed: probe.LacksTaskRegs}}
	}
	return []tool.View{v}
}

// ends shows the path of a UNIX socket as its address. It removes columns that
// a failed connect does not have: the local end, and the remote one if only the
// ring knows it.
func ends(e *event, r *row.Row) {
	if e.Family == unix.AF_UNIX {
		e.Path.Cell(r.Get("raddr"))
	}
	if e.Lport == 0 {
		*r.Get("lport") = row.Cell{}
	}
	if e.Rport == 0 && e.Result != 0 || e.Family == unix.AF_UNIX {
		*r.Get("rport") = row.Cell{}
	}
	for _, id := range []string{"laddr", "raddr"} {
		if c := r.Get(id); e.Result != 0 && c.Kind == row.Addr && c.IP().IsUnspecified() {
			*c = row.Cell{}
		}
	}
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
		{Name: "gone"},
		{Name: "connect"},
		{Name: "state"},
		probe.Uring("uring", "connects by io_uring"),
		tool.Pending,
	},
	Views: views,
}
