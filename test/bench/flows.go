// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/object"
)

// flowCosts measures flows over three loads: beside a program that only reads the clock and looks up
// the socket where flows does, and beside tcplife where connections come and go.
func flowCosts(o *options) ([]figure, error) {
	const floor = "clock and look-up"
	part := figure{What: "flows: BPF, of the CPU of requests", Unit: "%", Beside: floor, Goal: &goal{Bound: 2.5}}
	each := figure{What: "flows: BPF per request", Unit: "ns", Beside: floor}
	exact := figure{What: "flows --exact: BPF, of the CPU of requests", Unit: "%"}
	bulk := figure{What: "flows: BPF, of the CPU of bulk", Unit: "%", Goal: &goal{Bound: 0.7}}
	session := figure{What: "flows: BPF per session", Unit: "ns", Beside: "tcplife", Goal: &goal{Bound: 1, Ratio: true}}
	for range o.rounds {
		var cpu float64
		run := func(l *load) func() error {
			return func() (err error) { cpu, err = o.cpuOf(l); return err }
		}
		err := o.onHooks([]*empty{{tracepoint: "tcp_rcv_space_adjust", looks: true}}, run(requestLoad), func(sum cost) {
			part.Other = append(part.Other, 100*sum.ns/cpu)
			each.Other = append(each.Other, sum.ns/o.units(requestLoad))
		})
		if err != nil {
			return nil, err
		}
		for _, s := range []struct {
			load *load
			args []string
			take func(sum cost)
		}{
			{requestLoad, []string{"flows"}, func(sum cost) {
				part.Own = append(part.Own, 100*sum.ns/cpu)
				each.Own = append(each.Own, sum.ns/o.units(requestLoad))
			}},
			{requestLoad, []string{"flows", "--exact"}, func(sum cost) { exact.Own = append(exact.Own, 100*sum.ns/cpu) }},
			{bulkLoad, []string{"flows"}, func(sum cost) { bulk.Own = append(bulk.Own, 100*sum.ns/cpu) }},
			{sessionLoad, []string{"flows"}, func(sum cost) { session.Own = append(session.Own, sum.ns/o.units(sessionLoad)) }},
			{sessionLoad, []string{"tcplife"}, func(sum cost) { session.Other = append(session.Other, sum.ns/o.units(sessionLoad)) }},
		} {
			c := o.own(s.args...)
			err := beside(c, func() error {
				m, err := during(c, run(s.load))
				if err != nil {
					return err
				}
				s.take(total(m))
				if o.each {
					explain(append(c.args, "over", s.load.name), m, o.units(s.load))
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	spec, err := object.Spec("flows")
	if err != nil {
		return nil, err
	}
	room := figure{What: "flows: kept of a connection", Unit: "bytes", Own: []float64{float64(spec.Maps["flows"].ValueSize)}, Goal: &goal{Bound: 320}}
	return []figure{part, each, exact, bulk, session, room}, nil
}

// looking reads the clock and looks its first argument up in a map.
func looking(m *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, -8, asm.R6, asm.DWord),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.FnMapLookupElem.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}
