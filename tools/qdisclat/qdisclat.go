// SPDX-License-Identifier: Apache-2.0

// Package qdisclat shows how long packets spend in queueing disciplines.
package qdisclat

import (
	_ "embed"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Kind string `flag:"kind" bpf:"only_kind" help:"only queueing disciplines of this kind: fq_codel, tbf, …"`
}

// handle is the kernel's number of a queueing discipline, or of a class of one.
type handle uint32

func (handle) Kind() row.Kind { return row.Text }

func (h *handle) Cell(c *row.Cell) {
	switch major, minor := *h>>16, *h&0xffff; {
	case *h == 0xffffffff:
		c.SetText("root")
	case minor == 0:
		c.SetText(fmt.Sprintf("%x:", uint32(major)))
	default:
		c.SetText(fmt.Sprintf("%x:%x", uint32(major), uint32(minor)))
	}
}

// key is struct queue_key of qdisclat.bpf.c.
type key struct {
	Dev    kern.DevKey `col:",inline"`
	Kind   kern.Comm   `col:"kind,width=10,key" help:"queueing discipline, by the kernel's name for it"`
	Handle handle      `col:"handle,width=6,key" help:"its number, as tc shows it; 0: it has no number"`
	Parent handle      `col:"parent,width=6,key" help:"the class it is attached to; root: it is the root queue of the device"`
}

// value is struct queue_value of qdisclat.bpf.c.
type value struct {
	Hist     kern.Hist `col:"latency_us,unit=us" help:"from when the packet was put into the queue until it was taken out, as a histogram"`
	Dequeued uint64    `col:"dequeued,width=8,sum" help:"packets taken out: those of the histogram, requeued and unknown together"`
	Split    uint64    `col:"split,width=6,sum" help:"packets of the histogram that are pieces of a packet that the queue cut"`
	Requeued uint64    `col:"requeued,width=8,sum" help:"packets taken out once more because the driver had refused them"`
	Unknown  uint64    `col:"unknown,width=7,sum" help:"packets taken out that the tool did not see put in: they were there before, or are copies made by the queue"`
	Bypassed uint64    `col:"bypassed,width=8,sum" help:"packets that went straight to the driver because the queue was empty"`
	Dropped  uint64    `col:"dropped,width=7,sum" help:"packets that the queue threw away"`
}

func views(cfg any) []tool.View {
	return []tool.View{{
		Points: []probe.Point{child(cfg.(*config).Kind)},
		Output: tool.Snapshot[key, value]{Map: "queues"},
		Show:   "dev kind dequeued split requeued unknown bypassed dropped latency_us",
		Says:   "[{dev} ][{kind}: ]{count} packets, p50 {p50}, p99 {p99} us, {dropped} dropped",
		By:     []string{"dev", "kind"},
		Sort:   "latency_us",
	}}
}

// child is the point for queues below others: the functions of their kind.
func child(kind string) probe.Point {
	enqueue, dequeue := functions(kind)
	return probe.Point{
		Name:   "child",
		Needed: func(*probe.Kernel) bool { return kind != "" && anyChild(kind) },
		Ways: []probe.Way{{
			Name: "kprobe", Programs: []string{"child__kprobe__*"},
			Fits: func(*probe.Kernel) error {
				if kind == "" {
					return fmt.Errorf("%w: it can be seen only if you name its kind", probe.ErrNotSupported)
				}
				return nil
			},
			Misses: "drops and pieces of packets that a queue below another one cut",
		}},
		Attach: func(p *ebpf.Program, s *ebpf.ProgramSpec) (io.Closer, error) {
			switch s.Name {
			case "child__kprobe__peek":
				if kind == "codel" {
					if l, err := link.Kretprobe("codel_peek", p, nil); err == nil {
						return l, nil
					}
				}
				return io.NopCloser(nil), nil // others look without taking, or by dequeue
			case "child__kprobe__dequeue":
				// If the function is made of two, the queue
				// above calls the inner one to peek.
				if l, err := link.Kretprobe("__"+dequeue, p, nil); err == nil {
					return l, nil
				}
				return link.Kretprobe(dequeue, p, nil)
			}
			return link.Kprobe(enqueue, p, nil)
		},
	}
}

// alias is the name of the book's tool for one kind.
func alias(kind, short string) tool.Alias {
	return tool.Alias{Name: "qdisc-" + kind, Flags: []string{"--kind=" + kind}, Short: short + ": time in the queue"}
}

// Tool is qdisclat.
var Tool = &tool.Tool{
	Name: "qdisclat", Layer: tool.Queue, Short: "time that packets spend in queueing disciplines",
	Aliases: []tool.Alias{
		alias("fq", "Fair Queue"), alias("cbq", "Class Based Queueing"), alias("cbs", "Credit Based Shaper"),
		alias("codel", "Controlled Delay"), alias("fq_codel", "Fair Queue with Controlled Delay"),
		alias("red", "Random Early Detection"), alias("tbf", "Token Bucket Filter"),
	},
	Banner:  "Tracing queueing disciplines.",
	Doc:     readme,
	Filters: tool.FilterNetns | tool.FilterDev,
	Config:  func() any { return &config{} },
	Arg:     "kind",
	Look:    look,
	Points: []probe.Point{
		{Name: "transmit"}, {Name: "busy"}, {Name: "consumed"}, {Name: "dropped"}, {Name: "dequeue"},
		{Name: "enqueue", Optional: true, Misses: "nothing, but the wait for the queue's lock counts too"},
		{Name: "gone", Optional: true, Misses: "pieces of packets that queues cut, after 128 such queues"},
		{Name: "queue"},
	},
	Views: views,
}
