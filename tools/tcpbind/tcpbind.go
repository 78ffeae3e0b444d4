// SPDX-License-Identifier: Apache-2.0

// Package tcpbind shows each bind of a socket to an address.
package tcpbind

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct bind_event of tcpbind.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Result  kern.Result      `col:"ret,width=4;errno,as=errno,width=13" help:"what bind returned: 0 or a negative error number; errno by name, absent on success"`
	Options kern.SockOptions `col:"options,width=20" help:"options of the socket that matter to bind"`
	Ifindex kern.ID32        `col:"ifindex,head=IF,width=3" help:"the interface that the socket is bound to, by its number in the namespace"`
	Pad     uint32           `col:"-"`
}

// local removes the remote end, which a bind does not have.
func local(e *event, r *row.Row) {
	*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	if e.Lport == 0 {
		*r.Get("lport") = row.Cell{}
	}
}

// Tool is tcpbind.
var Tool = &tool.Tool{
	Name: "tcpbind", Layer: tool.TCP, Short: "binds to an address, with options and result",
	Banner:  "Tracing binds.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP(),
	Aliases: []tool.Alias{{Name: "bindsnoop", Short: "binds to an address"}},
	Points: []probe.Point{
		{Name: "bind"},
		probe.Uring("uring", "binds by io_uring"),
	},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "bind_event", Each: local},
		Show:   "time pid comm errno:ERROR proto:PROT laddr:ADDR lport:PORT options ifindex",
		Says:   "bind[ failed: {errno}][, {options}]",
	}),
}
