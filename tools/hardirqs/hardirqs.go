// SPDX-License-Identifier: Apache-2.0

// Package hardirqs shows how often handlers of device interrupts run, and for
// how long.
package hardirqs

import (
	_ "embed"

	"seine/internal/family"
	"seine/internal/host"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct{ family.TimesConfig }

// name is the name of an interrupt's handler, as in /proc/interrupts.
type name [40]byte

func (name) Kind() row.Kind { return row.Text }

func (n *name) Cell(c *row.Cell) {
	if n[0] == 0 {
		*c = row.Cell{}
		return
	}
	c.SetText(n.String())
}

func (n *name) String() string {
	for i, b := range n {
		if b == 0 {
			return string(n[:i])
		}
	}
	return string(n[:])
}

// key is struct hardirq_key of hardirqs.bpf.c.
type key struct {
	IRQ     uint32 `col:"irq,width=4,key" help:"number of the interrupt"`
	CPU     uint32 `col:"cpu,width=3,key" help:"processor"`
	Hardirq name   `col:"hardirq,width=24,key" help:"name of the handler, as in /proc/interrupts"`
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	var net func(*key) bool
	if c.Net {
		net = func(k *key) bool { return host.NetIRQ(k.IRQ, k.Hardirq.String()) != "" }
	}
	return []tool.View{family.Times(&c.TimesConfig, "irq hardirq", []string{"irq", "hardirq"}, nil, net)}
}

// Tool is hardirqs.
var Tool = &tool.Tool{
	Name: "hardirqs", Layer: tool.CPU, Short: "time, count and maximum of interrupt handlers",
	Banner: "Tracing interrupt handlers.",
	Doc:    readme,
	Config: func() any { return &config{} },
	Check:  func(cfg any) error { return cfg.(*config).Check() },
	Views:  views,
}
