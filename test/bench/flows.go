// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/object"
)

// flowCosts measures flows over three loads: beside a program that only does what has to be done at
// each read (see looking), and beside tcplife where connections come and go. What flows has to do
// there is the sum of both.
func flowCosts(o *options) ([]figure, error) {
	const floor = "clock, look-ups, a count"
	part := figure{What: "flows: BPF, of the CPU of requests", Unit: "%", Beside: floor, Goal: &goal{Bound: 2.5}}
	each := figure{What: "flows: BPF per request", Unit: "ns", Beside: floor}
	exact := figure{What: "flows --exact: BPF, of the CPU of requests", Unit: "%"}
	bulk := figure{What: "flows: BPF, of the CPU of bulk", Unit: "%", Beside: floor, Goal: &goal{Bound: 0.7}}
	session := figure{What: "flows: BPF per session", Unit: "ns", Beside: "tcplife", Goal: &goal{Bound: 1, Ratio: true}}
	least := figure{What: "flows: the same per session", Unit: "ns", Beside: "tcplife, " + floor}
	for range o.rounds {
		var cpu float64
		run := func(l *load) func() error {
			return func() (err error) { cpu, err = o.cpuOf(l); return err }
		}
		reads := 0.0 // a session
		for _, l := range []*load{requestLoad, bulkLoad, sessionLoad} {
			err := o.onHooks([]*empty{{tracepoint: "tcp_rcv_space_adjust", looks: true}}, run(l), func(sum cost) {
				switch l {
				case requestLoad:
					part.Other = append(part.Other, 100*sum.ns/cpu)
					each.Other = append(each.Other, sum.ns/o.units(l))
				case bulkLoad:
					bulk.Other = append(bulk.Other, 100*sum.ns/cpu)
				case sessionLoad:
					reads = sum.ns / o.units(l)
				}
			})
			if err != nil {
				return nil, err
			}
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
			{sessionLoad, []string{"tcplife"}, func(sum cost) {
				session.Other = append(session.Other, sum.ns/o.units(sessionLoad))
				least.Other = append(least.Other, sum.ns/o.units(sessionLoad)+reads)
			}},
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
	least.Own = session.Own
	spec, err := object.Spec("flows")
	if err != nil {
		return nil, err
	}
	room := figure{What: "flows: kept of a connection", Unit: "bytes", Own: []float64{float64(spec.Maps["flows"].ValueSize)}, Goal: &goal{Bound: 320}}
	return []figure{part, each, exact, bulk, session, least, room}, nil
}

// histShards is how many histograms there are for processors to count in.
const histShards = 4

// looking does what any tool must that times each read by connection and counts it in a histogram: it reads the clock, looks
// the socket up among entries as large as those of flows, and then a histogram, and counts in it.
func looking(entries, hists *ebpf.Map) asm.Instructions {
	lookUp := func(m *ebpf.Map, key int16) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, int32(key)),
			asm.FnMapLookupElem.Call(),
		}
	}
	return slices.Concat(asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.FnGetSmpProcessorId.Call(),
		asm.And.Imm(asm.R0, histShards-1),
		asm.StoreMem(asm.RFP, -16, asm.R0, asm.DWord),
	}, lookUp(hists, -16), asm.Instructions{
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.StoreMem(asm.RFP, -8, asm.R6, asm.DWord),
	}, lookUp(entries, -8), asm.Instructions{
		asm.JNE.Imm(asm.R0, 0, "found"),
		// The first read of the socket. What the new entry has in it does not matter: it is a histogram's memory.
		asm.LoadMapPtr(asm.R1, entries.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Reg(asm.R3, asm.R9),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Ja.Label("end"),
		// How long it was since the last read, and from now on.
		asm.LoadMem(asm.R8, asm.R0, 0, asm.DWord).WithSymbol("found"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
		asm.Sub.Reg(asm.R7, asm.R8),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
		asm.Add.Imm(asm.R9, 8),
		asm.StoreXAdd(asm.R9, asm.R7, asm.DWord),
		asm.RSh.Imm(asm.R7, 10),
		asm.And.Imm(asm.R7, 31),
		asm.LSh.Imm(asm.R7, 3),
		asm.Add.Imm(asm.R9, 24),
		asm.Add.Reg(asm.R9, asm.R7),
		asm.StoreXAdd(asm.R9, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	})
}
