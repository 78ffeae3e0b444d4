// SPDX-License-Identifier: Apache-2.0

// Package netqtop shows which queues of a device packets go through.
package netqtop

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Dist bool `flag:"dist" help:"sizes of packets as histograms"`
}

// direction is enum queue_dir of netqtop.bpf.c.
type direction uint32

// queue is the number of a queue.
type queue uint32

// noQueue is NO_QUEUE of netqtop.bpf.c.
const noQueue = 1<<32 - 1

// Kind is that of a number.
func (queue) Kind() row.Kind { return row.Uint }

// Cell is absent where the driver told no queue.
func (q *queue) Cell(c *row.Cell) {
	if *q == noQueue {
		*c = row.Cell{}
		return
	}
	c.SetUint(uint64(*q))
}

// key is struct queue_key of netqtop.bpf.c.
type key struct {
	Dev   kern.DevKey `col:",inline"`
	Dir   direction   `col:"dir,width=3,left,key" words:"rx,tx" help:"rx: received from the driver; tx: handed to the driver"`
	Queue queue       `col:"queue,width=5,key" help:"number of the device's queue in that direction; absent if the driver does not tell it"`
}

// value is struct queue_value of netqtop.bpf.c.
type value struct {
	Hist kern.Hist `col:"bytes,unit=bytes" help:"sizes, as a histogram: with the link's header when sent, without it when received"`
}

// totals is the same memory as value, without the histogram.
type totals struct {
	Hist sums `col:",inline"`
}

type sums struct {
	Count uint64                 `col:"packets,width=10,sum" help:"packets; what is sent or received as one counts once"`
	Sum   uint64                 `col:"bytes,width=12,sum" help:"their bytes: with the link's header when sent, without it when received"`
	Min   uint64                 `col:"average_bytes,head=AVERAGE,width=8" help:"bytes per packet"`
	Max   uint64                 `col:"-"`
	Slots [kern.HistSlots]uint64 `col:"-"`
}

func average(_ *key, v *totals, r *row.Row) {
	if v.Hist.Count > 0 {
		r.Get("average_bytes").SetUint(v.Hist.Sum / v.Hist.Count)
	}
}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Snapshot[key, totals]{Map: "queues", Interval: true, Each: average},
		Show:   "dev dir queue packets bytes average_bytes",
		Says:   "[{dev} ][{dir} ][queue {queue}: ]{packets} packets, {bytes} bytes",
		By:     []string{"dev", "dir", "queue"},
		Sort:   "packets",
	}
	if cfg.(*config).Dist {
		v.Output = tool.Snapshot[key, value]{Map: "queues", Interval: true}
		v.Show = "dev dir queue bytes"
		v.Says = "[{dev} ][{dir} ][queue {queue}: ]{count} packets, p50 {p50}, p99 {p99} bytes"
		v.Sort = "bytes"
	}
	return []tool.View{v}
}

// Tool is netqtop.
var Tool = &tool.Tool{
	Name: "netqtop", Layer: tool.Device, Short: "packets and bytes by queue of a device",
	Banner:  "Tracing queues of devices.",
	Doc:     readme,
	Filters: tool.FilterNetns | tool.FilterDev,
	Config:  func() any { return &config{} },
	Points:  []probe.Point{{Name: "transmit"}, {Name: "receive"}},
	Views:   views,
}
