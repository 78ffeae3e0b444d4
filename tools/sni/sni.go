// SPDX-License-Identifier: Apache-2.0

// Package sni shows the server name of each TLS session that a client begins.
package sni

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// made is a column whose text Each makes.
type made[T any] struct{ V T }

func (made[T]) Kind() row.Kind    { return row.Text }
func (*made[T]) Cell(c *row.Cell) { *c = row.Cell{} }

// hello is struct hello_event of sni.bpf.c.
type hello struct {
	kern.Head
	kern.Tuple
	Len  uint32           `col:"hello_bytes,width=5" help:"length of the ClientHello with its record headers, at most 4096"`
	Pad  uint32           `col:"-"`
	Data made[[4096]byte] `col:"version,width=7,key;alpn,width=12,key;name,width=30,key" help:"highest version of TLS that the client offers; protocols that it offers; server name that it asks for, absent if it names none"`
}

// describe parses the ClientHello.
func describe(h *hello, r *row.Row) {
	c := kern.TLSHello(h.Data.V[:min(int(h.Len), len(h.Data.V))])
	for id, text := range map[string]string{"version": c.Version, "alpn": c.ALPN, "name": c.Name} {
		if text != "" {
			r.Get(id).SetText(text)
		}
	}
}

// Tool is sni.
var Tool = &tool.Tool{
	Name: "sni", Layer: tool.Socket, Short: "server names of TLS sessions",
	Banner:  "Tracing the server names of TLS clients.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp", "mptcp"),
	Points:  []probe.Point{{Name: "gone"}, {Name: "hello"}},
	Views: tool.One(tool.View{
		Output: tool.Stream[hello]{Type: "hello_event", Each: describe},
		Show:   "time pid comm raddr rport version alpn name",
		Says:   "TLS {version}[ {name}][, {alpn}]",
	}),
}
