// SPDX-License-Identifier: Apache-2.0

// Package socketio counts reads and writes on sockets.
package socketio

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// value is struct io_count of socketio.bpf.c.
type value struct {
	kern.Count
	Errors uint64 `col:"errors,width=6,sum" help:"calls that failed; EAGAIN is not counted at all"`
}

// Tool is socketio.
var Tool = &tool.Tool{
	Name: "socketio", Layer: tool.Socket, Short: "reads and writes by process, direction, protocol and port",
	Banner:  "Counting socket reads and writes.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Points:  family.SockIO,
	Narrow:  family.NarrowIO,
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.IOKey, value]{Map: "counts"},
		Show:   "comm:PROCESS pid dir proto port count bytes",
		Says:   "[{dir}: ]{count} calls, {bytes} bytes[, port {port}]",
		By:     []string{"comm", "pid", "dir", "proto", "port"},
		Sort:   "count",
	}),
}
