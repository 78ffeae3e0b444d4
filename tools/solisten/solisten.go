// SPDX-License-Identifier: Apache-2.0

// Package solisten shows each listen: the process, the address and the backlog.
package solisten

import (
	_ "embed"

	"golang.org/x/sys/unix"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct listen_event of solisten.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Backlog kern.Opt    `col:"backlog,width=7" help:"how many connections may wait, as asked for; absent through io_uring"`
	Limit   kern.Opt    `col:"limit,width=6" help:"how many connections can really wait: at most net.core.somaxconn; absent if the call failed"`
	Ret     kern.Result `col:"ret,width=4;errno,as=errno,width=13;result,as=result" help:"what listen returned: 0 or a negative error number; errno by name, absent on success; how it ended, in words"`
	By      kern.Via    `col:"via,width=7" help:"syscall or uring"`
	Path    kern.Path   `col:"-"`
	Pad     uint32      `col:"-"`
}

// tidy fills in names of UNIX sockets and removes the remote end, which a
// listener does not have.
func tidy(e *event, r *row.Row) {
	*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	switch e.Family {
	case unix.AF_INET, unix.AF_INET6:
		return
	case unix.AF_UNIX:
		e.Path.Cell(r.Get("laddr"))
	case unix.AF_UNSPEC: // the descriptor was not a socket
		for _, id := range []string{"laddr", "family", "proto"} {
			*r.Get(id) = row.Cell{}
		}
	}
	*r.Get("lport") = row.Cell{}
}

// Tool is solisten.
var Tool = &tool.Tool{
	Name: "solisten", Layer: tool.Socket, Short: "listens with address and backlog",
	Banner:  "Tracing listens.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Points:  family.SockCalls,
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "listen_event", Each: tidy},
		Show:   "time pid comm ret backlog limit proto lport:PORT laddr:ADDR",
		Says:   "listen: {result}, backlog {backlog}, limit {limit}",
	}),
}
