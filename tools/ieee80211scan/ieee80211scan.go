// SPDX-License-Identifier: Apache-2.0

// Package ieee80211scan shows Wi-Fi scans: the request and its process, the
// channels of a software scan, the networks that are heard, and the end.
package ieee80211scan

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// event is struct scan_event of ieee80211scan.bpf.c.
type event struct {
	kern.Head
	Scan     kern.ID    `col:"scan" help:"number of the scan: the same in all of its rows"`
	Duration kern.Nanos `col:"duration_ms,div=1000000,width=8,prec=1" help:"end: duration of the whole scan; channel: time on that channel"`
	Dev      kern.Comm  `col:"dev,width=8,key" help:"interface; absent for devices without one (P2P)"`
	Phy      kern.Comm  `col:"phy,width=6,key" help:"radio"`
	What     what       `col:"event,width=7,key" help:"start, channel (left, by a software scan), found (a network, once in each scan), end"`
	Flags    flags      `col:"flags,key" help:"flags of the request, by nl80211's names"`
	Channels uint32     `col:"channels,width=8" help:"how many channels were asked for"`
	KHz      uint32     `col:"freq_mhz,div=1000,width=8,key" help:"channel, found: its frequency"`
	Band     band       `col:"band,width=6,key" help:"channel, found: its band"`
	Beacons  uint32     `col:"beacons,width=7" help:"beacons and answers to probes heard: on the channel, or in the whole scan"`
	Networks uint32     `col:"networks,width=8" help:"how many different networks (BSSIDs) were heard"`
	Signal   int32      `col:"signal_dbm,div=100,width=6" help:"found: strength, where the driver gives it in dBm"`
	Ret      result     `col:"result,width=8,key" help:"end: done, aborted, or the driver's reason to refuse"`
	Software software   `col:"by,width=8,key" help:"who scans the channels: software (mac80211) or firmware (the device or its driver, which is not seen)"`
	Aborted  uint8      `col:"-"`
	BSSID    mac        `col:"bssid,width=17,key" help:"found: the network's station"`
	SSIDs    mode       `col:"mode,width=7,key" help:"active: sends probe requests; passive: only listens"`
	Asked    asked      `col:"asked" help:"start: names asked for, the first four; \"\" is any"`
	SSID     ssid       `col:"ssid,width=16,key" help:"found: name of the network; empty: hidden"`
	Pad      [3]uint8   `col:"-"`
	Plan     plan       `col:"plan" help:"start: frequencies asked for, in MHz"`
	Text     words      `col:"text" help:"the row in words"`
}

const (
	noSteps = "the channels that software scans go through, and that they are software's"
	module  = "cfg80211"
)

// ways are the ways of a tracepoint in cfg80211.
func ways(point string) []probe.Way {
	var out []probe.Way
	for _, name := range []string{"btf", "raw"} {
		out = append(out, probe.Way{Name: name, Programs: []string{point + "__" + name}, Fits: probe.HasModule(module)})
	}
	return out
}

// Tool is ieee80211scan.
var Tool = &tool.Tool{
	Name: "ieee80211scan", Layer: tool.Device, Short: "Wi-Fi scans: channels, networks found, duration",
	Banner:  "Tracing ieee80211 SSID scans.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns | tool.FilterDev,
	Points: []probe.Point{
		{Name: "done", Ways: ways("done")},
		{Name: "start", Ways: ways("start")},
		{Name: "answer", Ways: ways("answer")},
		{Name: "found", Ways: ways("found")},
		{Name: "software", Optional: true, Misses: noSteps},
		{Name: "step", Optional: true, Misses: noSteps},
	},
	Views: tool.One(tool.View{
		Output: tool.Stream[event]{Type: "scan_event", Each: each},
		Show:   "time dev event band freq_mhz beacons duration_ms result",
		Says:   "{text}",
		Line:   "{time} {text}",
	}),
}
