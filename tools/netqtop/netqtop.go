// SPDX-License-Identifier: Apache-2.0

// Package netqtop shows which queues of a device packets go through.
package netqtop

import (
	_ "embed"
	"fmt"

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

// Kind is Uint.
func (queue) Kind() row.Kind { return row.Uint }

// Cell is absent if the driver did not record a queue.
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
	Queue queue       `col:"queue,width=5,key" help:"number of the device's queue in that direction; absent if the driver does not record it"`
}

// value is struct queue_value of netqtop.bpf.c.
type value struct {
	Hist   kern.Hist `col:"bytes,unit=bytes" help:"sizes, as a histogram: with the link-layer header for sent packets, without it for received ones"`
	Dev    uint64    `col:"-"`
	Queues uint32    `col:"-"`
	Mixed  uint32    `col:"-"`
}

// totals is the same memory as value, without the histogram.
type totals struct {
	Hist   sums   `col:",inline"`
	Dev    device `col:"imbalance,width=21,left" help:"text if the queue has much more than its share: its packets are halfway or more between an equal share and all"`
	Queues uint32 `col:"queues,width=6" help:"number of queues of the device in that direction"`
	Mixed  uint32 `col:"-"`
}

// device is the address of a device. describe replaces it with a text.
type device uint64

// Kind is Text.
func (device) Kind() row.Kind { return row.Text }

// Cell is absent until describe fills it in.
func (*device) Cell(c *row.Cell) { *c = row.Cell{} }

type sums struct {
	Count uint64                 `col:"packets,width=10,sum" help:"packets; an aggregate (GSO, GRO) counts once"`
	Sum   uint64                 `col:"bytes,width=12,sum" help:"bytes of the packets: with the link-layer header for sent packets, without it for received ones"`
	Min   uint64                 `col:"average_bytes,head=AVERAGE,width=8" help:"bytes per packet"`
	Max   uint64                 `col:"share_pct,head=SHARE%,width=6" help:"share of the device's packets in that direction, in percent"`
	Slots [kern.HistSlots]uint64 `col:"-"`
}

// enough is the least number of packets of a device for a statement about their imbalance.
const enough = 100

// spread stores the packets of a device in one direction with each of its queues. It uses the field Max, which is not
// shown here. It leaves 0 if the row mixes devices, if the queue is unknown, or if the queue's number is higher than
// the device has queues.
func spread(all map[key]*totals) {
	type side struct {
		dev kern.DevKey
		dir direction
	}
	type whole struct {
		packets uint64
		dev     device
		mixed   bool
	}
	devices := map[side]whole{}
	for k, v := range all {
		d, known := devices[side{k.Dev, k.Dir}]
		d.mixed = d.mixed || v.Mixed != 0 || known && d.dev != v.Dev || uint32(k.Queue) >= v.Queues
		d.packets, d.dev = d.packets+v.Hist.Count, v.Dev
		devices[side{k.Dev, k.Dir}] = d
	}
	for k, v := range all {
		v.Hist.Max = 0
		if d := devices[side{k.Dev, k.Dir}]; !d.mixed {
			v.Hist.Max = d.packets
		}
	}
}

// describe fills in the columns that are calculated from the counts.
func describe(_ *key, v *totals, r *row.Row) {
	count, all, queues := v.Hist.Count, v.Hist.Max, uint64(v.Queues)
	if count > 0 {
		r.Get("average_bytes").SetUint(v.Hist.Sum / count)
	}
	share, told := r.Get("share_pct"), r.Get("queues")
	if all == 0 || r.Get("dev").Kind == row.Null || r.Get("dir").Kind == row.Null || r.Get("queue").Kind == row.Null {
		*share, *told = row.Cell{}, row.Cell{}
		return
	}
	percent := (100*count + all/2) / all
	share.SetUint(percent)
	if queues > 1 && all >= enough && 2*queues*count >= (queues+1)*all {
		r.Get("imbalance").SetText(fmt.Sprintf("%d%% in 1 of %d queues", percent, queues))
	}
}

func views(cfg any) []tool.View {
	v := tool.View{
		Output: tool.Snapshot[key, totals]{Map: "queues", Interval: true, All: spread, Each: describe},
		Show:   "dev dir queue packets bytes average_bytes share_pct imbalance",
		Says:   "[{dev} ][{dir} ][queue {queue}: ]{packets} packets, {bytes} bytes[: {imbalance}]",
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
