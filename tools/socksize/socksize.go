// SPDX-License-Identifier: Apache-2.0

// Package socksize shows how large reads and writes on sockets are.
package socksize

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Totals bool `flag:"totals" help:"count, average and total instead of histograms"`
	Stacks bool `flag:"stacks" help:"also split by the user stack that made the calls"`
}

// key is struct size_key of socksize.bpf.c.
type key struct {
	IO     kern.IOKey   `col:",inline"`
	Ustack kern.StackID `col:"ustack,as=ustack,key" help:"user stack, innermost function first"`
	Pad    uint32       `col:"-"`
}

// value is struct size_value of socksize.bpf.c.
type value struct {
	Hist   kern.Hist `col:"bytes,unit=bytes" help:"sizes of successful calls, as a histogram"`
	Errors uint64    `col:"errors,width=6,sum" help:"calls that failed; EAGAIN is not counted at all"`
}

// totals is the same memory as value, in the book's second form.
type totals struct {
	Hist   sums   `col:",inline"`
	Errors uint64 `col:"errors,width=6,sum" help:"calls that failed; EAGAIN is not counted at all"`
}

// sums is kern.Hist without the histogram.
type sums struct {
	Count uint64                 `col:"count,width=8,sum" help:"successful calls"`
	Sum   uint64                 `col:"total_bytes,head=TOTAL,width=10,sum" help:"bytes moved"`
	Min   uint64                 `col:"average_bytes,head=AVERAGE,width=8" help:"bytes per call"`
	Max   uint64                 `col:"-"`
	Slots [kern.HistSlots]uint64 `col:"-"`
}

func average(_ *key, v *totals, r *row.Row) {
	if v.Hist.Count > 0 {
		r.Get("average_bytes").SetUint(v.Hist.Sum / v.Hist.Count)
	}
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Output: tool.Snapshot[key, value]{Map: "sizes"},
		Show:   "comm:PROCESS dir errors bytes",
		Says:   "[{dir}: ]{count} calls, p50 {p50}, p99 {p99} bytes",
		By:     []string{"comm", "dir"},
		Sort:   "bytes",
	}
	if c.Totals {
		v.Output = tool.Snapshot[key, totals]{Map: "sizes", Each: average}
		v.Show = "comm:PROCESS dir count average_bytes total_bytes errors"
		v.Says = "[{dir}: ]{count} calls, {total_bytes} bytes"
		v.Sort = "count"
	}
	if c.Stacks {
		v.Always = []string{"ustack"}
	}
	return []tool.View{v}
}

// Tool is socksize.
var Tool = &tool.Tool{
	Name: "socksize", Layer: tool.Socket, Short: "sizes of reads and writes, as histograms",
	Banner:  "Tracing socket reads and writes.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Config:  func() any { return &config{} },
	Points:  family.SockIO,
	Narrow:  family.NarrowIO,
	Views:   views,
	Formats: []string{"folded"},
}
