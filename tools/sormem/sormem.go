// SPDX-License-Identifier: Apache-2.0

// Package sormem shows how full receive buffers are compared with their limit,
// and which overflow.
package sormem

import (
	_ "embed"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Send bool `flag:"send" bpf:"show_send" help:"show overflows of send buffers too"`
}

// metric is one of the histograms of a value.
type metric uint16

const (
	_ metric = iota // of what is in the buffer
	limit
	ratio
)

// reason is enum mem_reason of sormem.bpf.c.
type reason uint32

// kind is KIND_* of sormem.bpf.c.
type kind uint32

// key is struct mem_key of sormem.bpf.c.
type key struct {
	PID    kern.ID32  `col:"pid,width=7,key" help:"process"`
	UID    uint32     `col:"uid,width=5,key" help:"user"`
	Metric metric     `col:"metric,width=10,key" words:"rmem_alloc,rmem_limit,rmem_ratio" help:"rmem_alloc: bytes in the buffer; rmem_limit: its size; rmem_ratio: rmem_alloc in per cent of rmem_limit"`
	CPU    uint16     `col:"-"`
	Lport  kern.ID16  `col:"lport,width=5,key" help:"local port"`
	Proto  kern.Proto `col:"proto,width=7,key" help:"protocol"`
	Comm   kern.Comm  `col:"comm,width=16,key" help:"process name"`
}

// value is struct mem_value of sormem.bpf.c.
type value struct {
	Alloc kern.Hist `col:"bytes,unit=bytes" help:"bytes, as a histogram"`
	Limit kern.Hist `col:"-"`
	Ratio kern.Hist `col:"-"`
}

// percent is the same struct, with the column of another view.
type percent struct {
	Alloc kern.Hist `col:"-"`
	Limit kern.Hist `col:"-"`
	Ratio kern.Hist `col:"percent,unit=percent" help:"per cent, as a histogram"`
}

// Merge adds the histograms of another processor.
func (v *value) Merge(o *value) {
	v.Alloc.Merge(&o.Alloc)
	v.Limit.Merge(&o.Limit)
	v.Ratio.Merge(&o.Ratio)
}

// Merge adds the one that the view shows.
func (p *percent) Merge(o *percent) { p.Ratio.Merge(&o.Ratio) }

// limits gives the second histogram of each value a row of its own.
func limits(m map[key]*value) {
	for _, k := range slices.Collect(maps.Keys(m)) {
		v := &value{Alloc: m[k].Limit}
		k.Metric = limit
		m[k] = v
	}
}

// ratios names the metric of the third.
func ratios(m map[key]*percent) {
	for _, k := range slices.Collect(maps.Keys(m)) {
		v := m[k]
		delete(m, k)
		k.Metric = ratio
		m[k] = v
	}
}

// event is struct mem_event of sormem.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Used   uint64   `col:"used_bytes,head=USED,width=9" help:"bytes in the buffer"`
	Limit  uint64   `col:"limit_bytes,head=LIMIT,width=9" help:"limit of the buffer"`
	Ratio  kern.Opt `col:"ratio,head=%,width=4" help:"bytes in the buffer, in per cent of its limit"`
	Drops  uint64   `col:"drops,width=7,sum" help:"how often, since the previous row of this socket and reason"`
	Reason reason   `col:"reason,width=15" words:"buffer full,queue full,protocol memory,zero window,prune,drop" help:"buffer full (UDP), queue full (raw, netlink, ping), protocol memory, zero window, prune or drop (TCP)"`
	Dir    kind     `col:"kind,width=7" words:"send,receive" help:"receive or send"`
}

// same is the key by which overflows are joined to one row: a receiver that does not read
// drops thousands of datagrams a second.
func same(e *event) any {
	return [...]any{e.Tuple, e.PID, e.Netns, e.Reason, e.Dir}
}

func join(next, before *event) { next.Drops += before.Drops }

// ends leaves out the ends that a socket does not have.
func ends(_ *event, r *row.Row) {
	kern.NoEnd(r, "laddr", "lport")
	kern.NoEnd(r, "raddr", "rport")
}

func views(any) []tool.View {
	return []tool.View{
		{
			Name:   "fill",
			Points: []probe.Point{fill},
			Output: tool.Snapshot[key, value]{Map: "fills", Leaves: true, Fold: true, All: limits},
			Show:   "metric bytes",
			Says:   "[{metric}: ]{count} messages, p50 {p50}, p99 {p99} bytes",
			Always: []string{"metric"},
			Sort:   "bytes",
		},
		{
			Name: "overflow",
			Points: []probe.Point{
				{Name: "gone"}, {Name: "udp"}, {Name: "queue"},
				{Name: "rawlook", Needed: raws}, {Name: "rawend", Optional: true, Misses: "the last drops of raw sockets", Needed: raws},
				{Name: "memory"}, {Name: "window"},
				{Name: "prune", Optional: true, Misses: "TCP pruning its queues, except for packets that it drops then"},
				{Name: "drop", Optional: true, Misses: "TCP segments that were dropped because the buffer was full", Ways: []probe.Way{
					{Name: "btf", Programs: []string{"drop__btf"}, Fits: probe.HasTracepoint("kfree_skb", 4)},
					{Name: "raw", Programs: []string{"drop__raw"}, Fits: probe.HasTracepoint("kfree_skb", 4)},
				}},
			},
			Output: tool.Stream[event]{Type: "mem_event", Each: ends, Repeat: tool.Repeat[event]{Key: same, Add: join}},
			Show:   "time pid comm proto laddr lport used_bytes limit_bytes ratio drops reason",
			Says:   "receive buffer: {used_bytes} of {limit_bytes} bytes, {reason}, {drops} times",
		},
		{
			Name:   "ratio",
			Output: tool.Snapshot[key, percent]{Map: "fills", Fold: true, Shown: func(p *percent) bool { return p.Ratio.Count > 0 }, All: ratios},
			Show:   "metric percent",
			Says:   "[{metric}: ]{count} messages, p50 {p50}, p99 {p99} percent",
			Sort:   "percent",
		},
	}
}

const early = "how full buffers are when data arrive: it is read when the program asks for them, before they are copied"

// raws reports whether a kernel may drop packets of raw sockets without a hook.
func raws(k *probe.Kernel) bool { return k.Args("sk_data_ready") != nil }

// fill is the point at which buffers are read: when data arrive, else before
// they are copied.
var fill = probe.Point{Name: "fill", Ways: []probe.Way{
	{Name: "btf", Programs: []string{"arrival__btf"}},
	{Name: "raw", Programs: []string{"arrival__raw"}},
	{Name: "fentry", Programs: []string{"receive__fentry"}, Misses: early},
	{Name: "tp", Programs: []string{"reading__tp__*"}, Misses: "io_uring; " + early},
	{Name: "kprobe", Programs: []string{"receive__kprobe"}, Misses: early},
	{Name: "sys", Programs: []string{"reading__btf__*"}, Misses: "io_uring; " + early},
}}

// Tool is sormem.
var Tool = &tool.Tool{
	Name: "sormem", Layer: tool.Socket, Short: "receive buffers: how full, and what overflows",
	Banner:   "Tracing receive buffers.",
	Doc:      readme,
	Filters:  tool.ByWho | tool.BySock | tool.ByTuple,
	Families: []uint16{unix.AF_INET, unix.AF_INET6},
	Config:   func() any { return &config{} },
	Views:    views,
}
