// SPDX-License-Identifier: Apache-2.0

// Package ipecn shows packets that met congestion (ECN CE), at each device that
// they cross, and the mix of ECN marks per flow.
package ipecn

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Summary bool `flag:"summary" bpf:"summary" help:"count packets of each flow by ECN mark instead"`
}

// event is struct ecn_event of ipecn.bpf.c.
type event struct {
	kern.Head
	Saddr  kern.Addr   `col:"saddr,width=15,key" help:"address that sent it"`
	Daddr  kern.Addr   `col:"daddr,width=15,key" help:"address that it goes to"`
	Dev    kern.Comm   `col:"dev,width=8,key" help:"device that it crosses"`
	Dir    kern.Packet `col:"dir,width=3,key" help:"in: received by the device; out: handed to its driver"`
	Segs   uint32      `col:"segs,width=4,sum" help:"packets that it stands for (GSO, GRO)"`
	Bytes  uint32      `col:"bytes,width=6,sum" help:"length of the IP packet"`
	Sport  kern.ID16   `col:"sport,width=5,key" help:"source port of TCP and UDP; absent in fragments after the first"`
	Dport  kern.ID16   `col:"dport,width=5,key" help:"destination port"`
	Family kern.Family `col:"family,key;ip,as=ip,width=2,key" help:"address family; version of IP: 4 or 6"`
	Proto  kern.Proto  `col:"proto,width=7,key" help:"protocol"`
	Pad    uint32      `col:"-"`
}

// key is struct ecn_key.
type key struct {
	Saddr  kern.Addr   `col:"saddr,width=15,key" help:"address that sent them"`
	Daddr  kern.Addr   `col:"daddr,width=15,key" help:"address that they go to"`
	Dev    kern.Comm   `col:"dev,width=8,key" help:"device that they cross"`
	Dir    kern.Packet `col:"dir,width=3,key" help:"in or out"`
	Netns  kern.ID32   `col:"netns,width=10,key" help:"network namespace of the device, by inode"`
	Sport  kern.ID16   `col:"sport,width=5,key" help:"source port of TCP and UDP"`
	Dport  kern.ID16   `col:"dport,width=5,key" help:"destination port"`
	Family kern.Family `col:"family,key;ip,as=ip,width=2,key" help:"address family; version of IP: 4 or 6"`
	Proto  kern.Proto  `col:"proto,width=7,key" help:"protocol"`
}

// mix is struct ecn_mix.
type mix struct {
	None uint64 `col:"not_ect,width=8,sum" help:"packets of transports that do not use ECN"`
	ECT1 uint64 `col:"ect1,width=8,sum" help:"packets marked ECT(1)"`
	ECT0 uint64 `col:"ect0,width=8,sum" help:"packets marked ECT(0): ECN-capable, no congestion met"`
	CE   uint64 `col:"ce,width=8,sum" help:"packets marked CE: congestion met"`
}

func views(cfg any) []tool.View {
	if cfg.(*config).Summary {
		return []tool.View{{
			Output: tool.Snapshot[key, mix]{Map: "mixes"},
			Show:   "dir dev proto saddr sport daddr dport not_ect ect0 ect1 ce",
			Says:   "[{dir} ][on {dev}: ]not capable {not_ect}, ECT(0) {ect0}, ECT(1) {ect1}, congested {ce}",
			By:     []string{"dir", "dev", "netns", "proto", "saddr", "sport", "daddr", "dport"},
			Sort:   "ce",
		}}
	}
	return []tool.View{{
		Output: tool.Stream[event]{Type: "ecn_event"},
		Show:   "time dir dev ip saddr daddr",
		Says:   "congestion marked, {dir} on {dev}",
		Time:   "micro",
	}}
}

// Tool is ipecn.
var Tool = &tool.Tool{
	Name: "ipecn", Layer: tool.IP, Short: "packets that met congestion (ECN CE), per device",
	Banner:  "Tracing ECN Congestion Encountered.",
	Doc:     readme,
	Filters: tool.FilterNetns | tool.FilterPort | tool.FilterAddr | tool.FilterIP4 | tool.FilterIP6 | tool.FilterDev,
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "receive"}, {Name: "transmit"}},
	Views:   views,
}
