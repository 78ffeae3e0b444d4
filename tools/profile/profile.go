// SPDX-License-Identifier: Apache-2.0

// Package profile shows where processors spend their time, by sampling stacks.
package profile

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
	Hz     uint64 `flag:"frequency" short:"F" help:"samples a second, on each processor"`
	Kernel bool   `flag:"kernel-stacks-only" short:"K" help:"group samples by kernel stack only"`
	User   bool   `flag:"user-stacks-only" short:"U" help:"group samples by user stack only"`
	Folded bool   `flag:"folded" short:"f" help:"the same as -o folded"`
	Idle   bool   `flag:"include-idle" bpf:"show_idle" help:"also count idle processors"`
	Net    bool   `flag:"net" help:"only samples in the kernel's network code, summed by layer"`
	Period uint64 `bpf:"period"`
}

// layer is a stack id that its Namer turns into the name of a layer.
type layer int32

func (layer) Kind() row.Kind { return row.Text }

func (l *layer) Cell(c *row.Cell) { c.SetInt(int64(*l)) }

// key is struct sample_key of profile.bpf.c.
type key struct {
	PID    kern.ID32    `col:"pid,width=7,key" help:"process"`
	TID    kern.ID32    `col:"tid,width=7,key" help:"thread id"`
	UID    uint32       `col:"uid,width=5,key" help:"user"`
	CPU    uint32       `col:"cpu,width=3,key" help:"processor"`
	Comm   kern.Comm    `col:"comm,width=16,key" help:"process name"`
	Thread kern.Comm    `col:"thread,width=16,key" help:"thread name"`
	Kstack kern.StackID `col:"kstack,as=kstack,key" help:"kernel stack, innermost function first"`
	Ustack kern.StackID `col:"ustack,as=ustack,key" help:"user stack, innermost function first"`
	Layer  layer        `col:"layer,as=layer,width=9,key" help:"layer of the network code: socket, unix, netlink, packet, tcp, udp, ip, netfilter, bridge, queue, napi, driver"`
	Pad    uint32       `col:"-"`
}

// value is struct sample_count of profile.bpf.c.
type value struct {
	Count uint64 `col:"count,width=7,sum" help:"samples"`
	NS    uint64 `col:"cpu_ms,div=1000000,width=8,prec=1,sum" help:"processor time that the samples stand for"`
}

func check(cfg any) error {
	switch c := cfg.(*config); {
	case c.Hz == 0:
		return tool.Usagef("--frequency: write a number from 1 up")
	case c.Kernel && c.User:
		return tool.Usagef("-K and -U: each leaves out what the other asks for; without them samples have both stacks")
	}
	return nil
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	c.Period = 1e9 / max(c.Hz, 1)
	stacks := []string{"pid", "comm"}
	if !c.User {
		stacks = append(stacks, "kstack")
	}
	if !c.Kernel {
		stacks = append(stacks, "ustack")
	}
	v := tool.View{
		Output: tool.Snapshot[key, value]{Map: "samples"},
		Points: []probe.Point{{Name: "sample", Attach: probe.Sample(c.Hz)}},
		Show:   "pid comm kstack ustack count cpu_ms",
		Says:   "{count} samples, {cpu_ms} ms[ in {layer}]",
		By:     stacks,
		Sort:   "count",
	}
	if c.Kernel {
		v.NoStack = "[user]"
	}
	if c.Net {
		v.By, v.Stacks, v.Always = []string{"layer"}, stacks, []string{"layer"}
		v.Show = "layer count cpu_ms"
		v.Merge, v.Where = true, "layer != nil"
	}
	if c.Folded {
		v.Format = "folded"
	}
	return []tool.View{v}
}

// Tool is profile.
var Tool = &tool.Tool{
	Name: "profile", Layer: tool.CPU, Short: "where processors spend their time: sampled stacks, or layers of the network",
	Banner:  "Sampling stacks.",
	Doc:     readme,
	Filters: tool.ByWho,
	Config:  func() any { return &config{Hz: 49} },
	Check:   check,
	Views:   views,
	Formats: []string{"folded"},
}
