// SPDX-License-Identifier: Apache-2.0

// Package softirqs shows how often softirqs run, for how long, and how long
// they wait to run.
package softirqs

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	family.TimesConfig
	Raise   bool   `flag:"raise" bpf:"waits" help:"also show the time from when a softirq is raised until it runs"`
	Vectors uint32 `bpf:"vectors"`
}

// vector is a softirq, by its number, which is the same in every kernel.
type vector uint32

var vectors = [...]string{"hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"}

const netTX, netRX = 2, 3

func (vector) Kind() row.Kind { return row.Text }

func (v *vector) Cell(c *row.Cell) { c.SetWord(uint64(*v), vectors[:]) }

// metric is enum irq_metric of softirqs.bpf.c.
type metric uint32

// key is struct softirq_key of softirqs.bpf.c.
type key struct {
	Softirq vector `col:"softirq,width=9,key" help:"which softirq, by its name in /proc/softirqs in lower case"`
	CPU     uint32 `col:"cpu,width=3,key" help:"processor"`
	Metric  metric `col:"metric,width=6,key" words:"run,wait" help:"run: from its start to its end; wait (with --raise): from when it was raised to its start"`
	Pad     uint32 `col:"-"`
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	c.Vectors = ^uint32(0)
	if c.Net {
		c.Vectors = 1<<netTX | 1<<netRX
	}
	v := family.Times[key](&c.TimesConfig, "softirq", []string{"softirq"}, nil, nil)
	if c.Raise {
		v.Always = []string{"metric"}
		v.Points = append([]probe.Point{{Name: "raise"}}, v.Points...)
	}
	return []tool.View{v}
}

// Tool is softirqs.
var Tool = &tool.Tool{
	Name: "softirqs", Layer: tool.CPU, Short: "time, count and maximum of softirqs, and their wait",
	Banner: "Tracing softirqs.",
	Doc:    readme,
	Config: func() any { return &config{} },
	Check:  func(cfg any) error { return cfg.(*config).Check() },
	Views:  views,
}
