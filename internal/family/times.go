// SPDX-License-Identifier: Apache-2.0

package family

import (
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

// TimesConfig is embedded in the config of tools whose kernel side is irq.h.
type TimesConfig struct {
	Dist  bool `flag:"dist" bpf:"dist" help:"distributions of the times, as histograms"`
	Count bool `flag:"counts" short:"C" bpf:"counting" help:"only how often, which costs less"`
	Net   bool `flag:"net" help:"only what belongs to networking"`
}

// Check is for Tool.Check.
func (c *TimesConfig) Check() error {
	if c.Count && c.Dist {
		return tool.Usagef("-C takes no times, and --dist shows how they are distributed: leave one out")
	}
	return nil
}

// times is struct irq_value of irq.h.
type times struct {
	Hist kern.Hist `col:"time_ns,unit=ns" help:"times, as a histogram"`
}

func (t *times) Merge(o *times) { t.Hist.Merge(&o.Hist) }

// totals is the same memory in the form of sums.
type totals struct {
	Hist kern.Took `col:",inline"`
}

func (t *totals) Merge(o *totals) { t.Hist.Hist().Merge(o.Hist.Hist()) }

// Times is the view of a tool that measures how long interrupts take: K in its
// map times, shown by the columns keys. Name may change the cells of a key; keep
// says which keys are shown. Either may be nil.
func Times[K comparable](c *TimesConfig, keys string, by []string, name func(*K, *row.Row), keep func(*K) bool) tool.View {
	v := tool.View{
		Show: keys + " total_us:TOTAL_usecs count avg_us max_us", Sort: "total_us",
		Says:   "{count} times[, {total_us} us][, at most {max_us} us]",
		Points: []probe.Point{{Name: "entry"}, {Name: "exit"}},
		By:     by,
	}
	if c.Dist {
		v.Show, v.Sort = keys+" time_ns", "time_ns"
		v.Says = "{count} times, p50 {p50}, p99 {p99} ns"
		v.Output = tool.Snapshot[K, times]{
			Map: "times", Keyed: true, Fold: true, Keep: keep,
			Shown: func(t *times) bool { return t.Hist.Count > 0 },
			Each: func(k *K, _ *times, r *row.Row) {
				if name != nil {
					name(k, r)
				}
			},
		}
		return v
	}
	if c.Count {
		v.Show, v.Sort = keys+" count", "count"
		v.Points = v.Points[:1]
	}
	v.Output = tool.Snapshot[K, totals]{
		Map: "times", Keyed: true, Fold: true, Keep: keep,
		Shown: func(t *totals) bool { return t.Hist.Count > 0 },
		Each: func(k *K, t *totals, r *row.Row) {
			if name != nil {
				name(k, r)
			}
			if r.Get("avg_us").SetUint(uint64(t.Hist.Sum) / t.Hist.Count); c.Count {
				for _, id := range []string{"total_us", "avg_us", "max_us"} {
					*r.Get(id) = row.Cell{}
				}
			}
		},
	}
	return v
}
