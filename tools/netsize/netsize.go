// SPDX-License-Identifier: Apache-2.0

// Package netsize shows how large packets are, before and after segmentation
// and GRO.
package netsize

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// metric is enum metric of netsize.bpf.c.
type metric uint32

// key is struct size_key of netsize.bpf.c.
type key struct {
	Dev    kern.DevKey `col:",inline"`
	Metric metric      `col:"metric,width=8,key" words:"nic_recv,nic_send,recv,send" help:"nic_recv: from the driver, before GRO; recv: to the stack; send: from the stack; nic_send: to the driver, after segmentation"`
	Pad    uint32      `col:"-"`
}

// value is struct size_value of netsize.bpf.c.
type value struct {
	Hist kern.Hist `col:"bytes,unit=bytes" help:"sizes, as a histogram: with the link's header when sent, without it when received"`
}

// Tool is netsize.
var Tool = &tool.Tool{
	Name: "netsize", Layer: tool.Device, Short: "packet sizes, before and after segmentation and GRO",
	Banner:  "Tracing sizes of packets.",
	Doc:     readme,
	Filters: tool.FilterNetns | tool.FilterDev,
	Points:  []probe.Point{{Name: "gro"}, {Name: "frags"}, {Name: "receive"}, {Name: "queue"}, {Name: "transmit"}},
	Views: tool.One(tool.View{
		Output: tool.Snapshot[key, value]{Map: "sizes"},
		Show:   "metric bytes",
		Says:   "[{dev} ][{metric}: ]{count} packets, p50 {p50}, p99 {p99} bytes",
		Always: []string{"metric"},
		Sort:   "metric",
	}),
}
