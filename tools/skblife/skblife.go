// SPDX-License-Identifier: Apache-2.0

// Package skblife shows the lifetime of packet buffers.
package skblife

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// kind is enum life_kind of skblife.bpf.c.
type kind uint32

var kinds = [...]string{"alloc", "receive", "clone", "segment", "merged", "unknown"}

const gone, unknown kind = 4, 5 // gone: merged into another buffer

func (kind) Kind() row.Kind { return row.Text }

func (k *kind) Cell(c *row.Cell) { c.SetWord(uint64(*k), kinds[:]) }

// key is struct life_key of skblife.bpf.c.
type key struct {
	Kind kind `col:"kind,width=8,key" help:"alloc: made by a sender; receive: made by a driver; clone: shares the data of another buffer and has its age; segment: cut from a larger buffer, with its age; merged: any of these whose data moved to another buffer (GRO, TCP)"`
}

// value is struct life_value of skblife.bpf.c.
type value struct {
	Hist    kern.Hist `col:"life_ns,unit=ns" help:"time from birth to end"`
	Births  uint64    `col:"-"`
	Merged  uint64    `col:"-"`
	Unseen  uint64    `col:"-"`
	Unknown uint64    `col:"-"`
}

// balance is the same memory as value, as an account.
type balance struct {
	Hist    ends   `col:",inline"`
	Births  uint64 `col:"births,width=10,sum" help:"buffers that were made"`
	Merged  uint64 `col:"merged,width=10,sum" help:"buffers that were merged into another one"`
	Unseen  uint64 `col:"unseen,width=10,sum" help:"buffers whose end was not seen: their memory became a new buffer"`
	Unknown uint64 `col:"alive,width=10" help:"buffers whose end was not seen and whose memory was not reused: they count as alive"`
}

// ends is kern.Hist without the histogram.
type ends struct {
	Count uint64                 `col:"freed,width=10,sum" help:"buffers whose end was seen; kind unknown: ends of buffers whose birth was not seen"`
	Sum   uint64                 `col:"-"`
	Min   uint64                 `col:"-"`
	Max   uint64                 `col:"-"`
	Slots [kern.HistSlots]uint64 `col:"-"`
}

// stock is the number of buffers of each kind that are alive, from one output to the next.
type stock map[kind]int64

// alive adds the changes of an output to the stock. Buffers of unknown birth are not in it.
func (s stock) alive(k *key, v *balance, r *row.Row) {
	if k.Kind != unknown {
		s[k.Kind] += int64(v.Births - v.Hist.Count - v.Merged - v.Unseen)
		r.Get("alive").SetInt(s[k.Kind])
		return
	}
	r.Get("freed").SetUint(v.Unknown)
	for _, id := range []string{"births", "merged", "unseen", "alive"} {
		*r.Get(id) = row.Cell{}
	}
}

// makers are functions that some kernels do not have, and the programs on them.
var makers = map[string]string{
	"napi_alloc_skb": "napi", "__napi_alloc_skb": "napi3", "napi_build_skb": "nbuild", "slab_build_skb": "slab",
}

// functions returns the way by functions, for kernels that have the given
// makers.
func functions(have ...string) probe.Way {
	w := probe.Way{
		Name: "fexit", Fits: probe.HasFunctions(have...), Misses: "that the pieces after the 64th of a buffer are segments",
	}
	parts := []string{"alloc", "build", "netdev", "clone", "morph", "segment", "gro", "coalesce", "release", "stateless", "stolen"}
	for _, f := range have {
		parts = append(parts, makers[f])
	}
	for _, p := range parts {
		w.Programs = append(w.Programs, "life__fexit__"+p)
	}
	return w
}

const byTracepoints = "births in NAPI's cache (a received buffer is born at first sight), ends in it, ends of clones of sent TCP data that a local TCP socket receives; " +
	"the age of the data in other clones and in segments; which buffers TCP has merged"

// addresses fits if the kernel shows the addresses of its functions.
func addresses(*probe.Kernel) error {
	code, err := host.Code("__alloc_skb")
	if err == nil && len(code) < 1 {
		err = errors.New("no function __alloc_skb")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", probe.ErrNotSupported, err)
	}
	return nil
}

// named fits if the slab tracepoints have the cache, since 6.1.
func named(k *probe.Kernel) error {
	if k.Args("kmem_cache_alloc_node") != nil {
		return fmt.Errorf("%w: kmem_cache_free does not tell the slab cache", probe.ErrNotSupported)
	}
	return addresses(k)
}

// nameless fits if they do not have it.
func nameless(k *probe.Kernel) error {
	if err := probe.HasTracepoint("kmem_cache_alloc_node", 2)(k); err != nil {
		return err
	}
	return addresses(k)
}

// tracepoints returns the way by tracepoints.
func tracepoints(fits func(*probe.Kernel) error, more ...string) probe.Way {
	w := probe.Way{Name: "raw", Misses: byTracepoints, Fits: fits}
	for _, part := range append([]string{
		"alloc", "consume", "drop", "gro", "gro_end", "frags", "frags_end", "receive", "list",
	}, more...) {
		w.Programs = append(w.Programs, "life__raw__"+part)
	}
	return w
}

// narrow leaves out the points of softirqs unless there is a filter by process.
func narrow(points []probe.Point, w *tool.Wanted) []probe.Point {
	return slices.DeleteFunc(slices.Clone(points), func(p probe.Point) bool {
		return w.On&tool.ByWho == 0 && (p.Name == "enter" || p.Name == "leave")
	})
}

// Tool is skblife.
var Tool = &tool.Tool{
	Name: "skblife", Layer: tool.Device, Short: "how long packet buffers live, as histograms, and their balance",
	Banner:  "Tracing packet buffers.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns,
	Narrow:  narrow,
	// A softirq that began before leave was attached would never end, and one that began before enter would be taken for the task.
	Points: []probe.Point{{Name: "leave"}, {Name: "enter"}, {Name: "life", Ways: []probe.Way{
		functions("napi_alloc_skb", "napi_build_skb", "slab_build_skb"),   // 6.9
		functions("__napi_alloc_skb", "napi_build_skb", "slab_build_skb"), // 6.3
		functions("__napi_alloc_skb", "napi_build_skb"),                   // 5.12
		functions("__napi_alloc_skb"),
		tracepoints(nameless, "node", "any"), // until 6.0
		tracepoints(named, "free"),
	}}},
	Views: func(any) []tool.View {
		return []tool.View{
			{
				Name:   "lives",
				Output: tool.Snapshot[key, value]{Map: "spans", Shown: func(v *value) bool { return v.Hist.Count > 0 }},
				Show:   "kind life_ns",
				Says:   "[{kind}: ]{count} buffers, life p50 {p50}, p99 {p99} ns",
				By:     []string{"kind"},
				Always: []string{"kind"},
				Sort:   "life_ns",
			},
			{
				Name: "balance",
				Output: tool.Snapshot[key, balance]{
					Map: "spans", Each: stock{}.alive,
					Shown: func(v *balance) bool { return v.Births|v.Hist.Count|v.Merged|v.Unseen|v.Unknown != 0 },
					Keep:  func(k *key) bool { return k.Kind != gone }, // they count in the kind of their birth
				},
				Show: "kind births freed merged unseen alive",
				Says: "[{kind}: ]{births} buffers made, {freed} freed, {alive} alive",
			},
		}
	},
}
