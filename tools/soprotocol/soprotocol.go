// SPDX-License-Identifier: Apache-2.0

// Package soprotocol counts connects and accepts by protocol.
package soprotocol

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// Tool is soprotocol.
var Tool = &tool.Tool{
	Name: "soprotocol", Layer: tool.Socket, Short: "protocols of connects and accepts",
	Banner:  "Counting connects and accepts by protocol.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock,
	Points:  family.SockCalls,
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.CallKey, kern.CallCount]{Map: "counts"},
		Show:   "op comm:PROCESS proto proto_name prot count errors",
		Says:   "[{op}: ]{count} calls, {errors} failed[, {proto_name}]",
		By:     []string{"op", "comm", "proto", "proto_name", "prot"},
		Always: []string{"op"},
		Sort:   "count",
	}),
}
