// SPDX-License-Identifier: Apache-2.0

package main

import "seine/internal/object"

// flowCosts measures flows over three loads: beside programs that only do what has to be done at
// each read (see looking and knowing), and beside tcplife where connections come and go. What flows has to do
// there is the sum of both.
func flowCosts(o *options) ([]figure, error) {
	const floor = "clock, look-ups, a count"
	part := figure{What: "flows: BPF, of the CPU of requests", Unit: "%", Beside: floor, Goal: &goal{Bound: 2.5}}
	knows := figure{What: "flows: the same of requests", Unit: "%", Beside: "that, the process, the socket"}
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
			err := o.onHooks([]*empty{{tracepoint: "tcp_rcv_space_adjust", does: looking}}, run(l), func(sum cost) {
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
		err := o.onHooks([]*empty{{tracepoint: "tcp_rcv_space_adjust", does: knowing}}, run(requestLoad), func(sum cost) {
			knows.Other = append(knows.Other, 100*sum.ns/cpu)
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
	least.Own, knows.Own = session.Own, part.Own
	spec, err := object.Spec("flows")
	if err != nil {
		return nil, err
	}
	room := figure{What: "flows: kept of a connection", Unit: "bytes", Own: []float64{float64(spec.Maps["flows"].ValueSize)}, Goal: &goal{Bound: 320}}
	return []figure{part, knows, each, exact, bulk, session, least, room}, nil
}
