// SPDX-License-Identifier: Apache-2.0

// Package sofamily counts connects and accepts by address family.
package sofamily

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// value is struct family_count of sofamily.bpf.c.
type value struct {
	Count  uint64 `col:"count,width=8,sum" help:"calls"`
	Errors uint64 `col:"errors,width=6,sum" help:"of them, those that failed; EAGAIN is not counted at all, a connect in progress has not failed"`
}

// Tool is sofamily.
var Tool = &tool.Tool{
	Name: "sofamily", Layer: tool.Socket, Short: "address families of connects and accepts",
	Banner:  "Counting connects and accepts by address family.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock,
	Points:  tool.SockCalls,
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.CallKey, value]{Map: "counts"},
		Show:   "op comm:PROCESS family family_name count errors",
		By:     []string{"op", "comm", "family", "family_name"},
		Always: []string{"op"},
		Sort:   "count",
	}),
	Demo: demo,
	Live: live,
}
