// SPDX-License-Identifier: Apache-2.0

// Package nettxlat shows how long devices keep packets before they are sent.
package nettxlat

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// end is enum end of nettxlat.bpf.c.
type end uint32

// key is struct tx_key of nettxlat.bpf.c.
type key struct {
	Dev kern.DevKey `col:",inline"`
	End end         `col:"end,width=8,key" words:"freed,dropped,received,passed,returned" help:"freed: the driver is done with it; received: by the stack, over lo or veth; passed: to another device; dropped; returned: the driver was busy"`
	Pad uint32      `col:"-"`
}

// value is struct tx_value of nettxlat.bpf.c.
type value struct {
	Hist kern.Hist `col:"latency_us,unit=us" help:"from handing the packet to the driver until that end, as a histogram"`
}

// Tool is nettxlat.
var Tool = &tool.Tool{
	Name: "nettxlat", Layer: tool.Device, Short: "how long devices keep the packets they send",
	Banner:  "Tracing transmission by devices.",
	Doc:     readme,
	Filters: tool.FilterNetns | tool.FilterDev,
	Points: []probe.Point{
		{Name: "freed"}, {Name: "dropped"}, {Name: "gro"}, {Name: "received"}, {Name: "passed"}, {Name: "returned"}, {Name: "start"},
	},
	Views: tool.One(tool.View{
		Output: tool.Snapshot[key, value]{Map: "lats"},
		Show:   "end latency_us",
		Says:   "[{dev} ][{end}: ]{count} packets, p50 {p50}, p99 {p99} us",
		Always: []string{"end"},
		Sort:   "latency_us",
	}),
}
