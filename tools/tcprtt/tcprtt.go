// SPDX-License-Identifier: Apache-2.0

// Package tcprtt shows the round-trip times of TCP connections.
package tcprtt

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Minimum bool `flag:"minimum" bpf:"minimum" help:"use the shortest time of a connection's last minutes instead of the smoothed one"`
}

// key is struct rtt_key of tcprtt.bpf.c.
type key struct {
	TCP kern.TCPKey `col:",inline"`
}

// value is struct rtt_value of tcprtt.bpf.c.
type value struct {
	Hist kern.Hist `col:"rtt_us,unit=us" help:"the kernel's round-trip time of the connection at each segment that came in, as a histogram"`
}

// Tool is tcprtt.
var Tool = &tool.Tool{
	Name: "tcprtt", Layer: tool.TCP, Short: "round-trip times of TCP connections, as histograms",
	Banner:  "Tracing TCP round-trip times.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("tcp"),
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "segment"}},
	Views: tool.One(tool.View{
		Output: tool.Snapshot[key, value]{Map: "rtts"},
		Show:   "rtt_us",
		Says:   "{count} segments, p50 {p50}, p99 {p99} us",
		Sort:   "rtt_us",
	}),
}
