// SPDX-License-Identifier: Apache-2.0

// Package sockstat counts socket calls of every kind, each second.
package sockstat

import (
	_ "embed"
	"slices"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// value is struct stat_count of sockstat.bpf.c.
type value struct {
	kern.Count
	Errors uint64 `col:"errors,width=6,sum" help:"of them, calls that failed; EAGAIN is not counted at all, a connect in progress has not failed"`
}

// Merge adds the counts of another processor.
func (v *value) Merge(o *value) {
	v.Count.Count += o.Count.Count
	v.Bytes += o.Bytes
	v.Errors += o.Errors
}

// Tool is sockstat.
var Tool = &tool.Tool{
	Name: "sockstat", Layer: tool.Socket, Short: "socket calls of every kind, each second",
	Banner:  "Counting socket calls.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock,
	Points:  slices.Concat(family.SockCalls, family.SockIO),
	Views: tool.One(tool.View{
		Output: tool.Snapshot[kern.CallKey, value]{Map: "counts", Interval: true, Fold: true},
		Show:   "time op count bytes errors",
		Says:   "[{op}: ]{count} calls, {bytes} bytes, {errors} failed",
		By:     []string{"op"},
		Always: []string{"op"},
		Sort:   "count",
	}),
}
