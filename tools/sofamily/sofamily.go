// SPDX-License-Identifier: Apache-2.0

// Package sofamily counts connects and accepts by address family.
package sofamily

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// Tool is sofamily.
var Tool = &tool.Tool{
	Name: "sofamily", Layer: tool.Socket, Short: "address families of connects and accepts",
	Banner:  "Counting connects and accepts by address family.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock,
	Points:  family.SockCalls,
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.CallKey, kern.CallCount]{Map: "counts"},
		Show:   "op comm:PROCESS family family_name count errors",
		Says:   "[{op}: ]{count} calls, {errors} failed[, {family_name}]",
		By:     []string{"op", "comm", "family", "family_name"},
		Always: []string{"op"},
		Sort:   "count",
	}),
}
