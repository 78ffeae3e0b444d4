// SPDX-License-Identifier: Apache-2.0

// Package sofdsnoop shows file descriptors that processes pass to each other
// through UNIX sockets.
package sofdsnoop

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct pass_event of sofdsnoop.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Inode    uint64        `col:"inode,width=10" help:"inode of the file that was passed"`
	ViaInode viaInode      `col:"socket,width=20" help:"descriptor and inode of the UNIX socket that it went through"`
	FD       int32         `col:"fd,width=5" help:"the descriptor's number in the process of the row"`
	Via      int32         `col:"-"`
	Action   action        `col:"action,width=6" words:"SEND,RECV" help:"SEND or RECV"`
	Pad      uint32        `col:"-"`
	Type     kern.FileType `col:"type,width=14" help:"kind of the file that was passed: regular, memfd, directory, pipe, char, block, socket:FAMILY or anon:NAME"`
	Address  kern.Path     `col:"address,width=20" help:"name of the UNIX socket that it went through, or of its peer"`
	Path     kern.FilePath `col:"name,width=24" help:"path of the file that was passed; for a socket its two ends; else the kernel's name for it"`
}

// action is enum pass_action.
type action uint32

// viaInode is the inode of the socket that a descriptor went through.
type viaInode uint64

func (viaInode) Kind() row.Kind { return row.Text }

func (v *viaInode) Cell(c *row.Cell) { c.SetText(fmt.Sprintf("socket:[%d]", *v)) }

// name describes the file that was passed.
func (e *event) name() string {
	kind := e.Type.String()
	switch {
	case e.Family == unix.AF_INET || e.Family == unix.AF_INET6:
		s := e.Proto.String() + " " + end(e.Laddr, e.Lport)
		if e.Rport != 0 {
			s += " > " + end(e.Raddr, e.Rport)
		}
		return s
	case e.Family == unix.AF_UNIX:
		var c row.Cell
		own := kern.Path(e.Path.Names[:108])
		if own.Cell(&c); c.Kind != row.Null {
			return "unix " + c.S
		}
		return fmt.Sprintf("socket:[%d]", e.Inode)
	case kind == "pipe" && e.Path.Ends == kern.PathAlone:
		return fmt.Sprintf("pipe:[%d]", e.Inode)
	case strings.HasPrefix(kind, "socket"):
		return fmt.Sprintf("socket:[%d]", e.Inode)
	case strings.HasPrefix(kind, "anon:"):
		return "anon_inode:" + e.Path.String()
	}
	return e.Path.String()
}

func end(a kern.Addr, port uint16) string {
	return netip.AddrPortFrom(netip.AddrFrom16(a).Unmap(), port).String()
}

// tidy makes the names.
func tidy(e *event, r *row.Row) {
	name := e.name()
	r.Get("name").SetText(name)
	if e.Path.Ends == kern.PathAlone && strings.HasPrefix(name, "memfd:") {
		r.Get("type").SetText("memfd")
	}
	r.Get("socket").SetText(fmt.Sprintf("%d:socket:[%d]", e.Via, e.ViaInode))
	if e.Family != unix.AF_INET && e.Family != unix.AF_INET6 { // the file has no addresses
		for _, id := range []string{"laddr", "raddr", "lport", "rport"} {
			*r.Get(id) = row.Cell{}
		}
	}
	kern.NoEnd(r, "laddr", "lport")
	kern.NoEnd(r, "raddr", "rport")
	if e.Family == unix.AF_UNSPEC { // nor is it a socket
		*r.Get("family"), *r.Get("proto") = row.Cell{}, row.Cell{}
	}
}

// Tool is sofdsnoop.
var Tool = &tool.Tool{
	Name: "sofdsnoop", Layer: tool.Socket, Short: "file descriptors passed through UNIX sockets",
	Banner:  "Tracing descriptors passed through UNIX sockets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns,
	Points:  []probe.Point{{Name: "pass"}},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "pass_event", Each: tidy},
		Show:   "time action tid comm socket fd name",
		Says:   "{action} descriptor {fd}[: {name}]",
	}),
}
