// SPDX-License-Identifier: Apache-2.0

// Package soprotocol counts connects and accepts by protocol.
package soprotocol

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// value is struct protocol_count of soprotocol.bpf.c.
type value struct {
	Count  uint64 `col:"count,width=8,sum" help:"calls"`
	Errors uint64 `col:"errors,width=6,sum" help:"of them, those that failed; EAGAIN is not counted at all, a connect in progress has not failed"`
}

// Tool is soprotocol.
var Tool = &tool.Tool{
	Name: "soprotocol", Layer: tool.Socket, Short: "protocols of connects and accepts",
	Banner:  "Counting connects and accepts by protocol.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock,
	Points:  tool.SockCalls,
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.CallKey, value]{Map: "counts"},
		Show:   "op comm:PROCESS proto proto_name prot count errors",
		By:     []string{"op", "comm", "proto", "proto_name", "prot"},
		Always: []string{"op"},
		Sort:   "count",
	}),
	Demo: demo,
	Live: live,
}
