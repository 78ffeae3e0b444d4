// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// whyLooks are programs that only look up what the tools of why must over requests: the connection of each read, the
// owner of the socket at each send and receive, and whether a packet is a SYN. dns, too, sees each packet, and has an
// empty program instead.
var whyLooks = []*empty{
	{tracepoint: "tcp_rcv_space_adjust", does: knowing},
	{tracepoint: "sock_send_length", socket: finds}, {tracepoint: "sock_recv_length", socket: finds},
	{tracepoint: "netif_receive_skb", reads: true},
}

// windowCosts measures the tools of why and of top beside flows, which is one of them. The least that the others can cost
// is that of empty programs that run as often.
func windowCosts(o *options) ([]figure, error) {
	const floor = "flows, and empty programs"
	why := figure{What: "why: BPF, of the CPU of requests", Unit: "%", Beside: floor, Goal: &goal{Bound: 5}}
	looks := figure{What: "why: the same of requests", Unit: "%", Beside: "look-ups alone, and empty programs"}
	loads := []*load{requestLoad, sessionLoad}
	top, least := map[*load]*figure{}, map[*load]*figure{}
	for _, l := range loads {
		each := "per " + strings.TrimSuffix(l.name, "s")
		top[l] = &figure{What: "top: BPF " + each, Unit: "ns", Beside: "flows alone", Goal: &goal{Bound: 1.3, Ratio: true}}
		least[l] = &figure{What: "top: the same " + each, Unit: "ns", Beside: floor}
	}
	for range o.rounds {
		empty, err := o.floors()
		if err != nil {
			return nil, err
		}
		for _, l := range loads {
			var cpu float64
			run := func(args ...string) (sum cost, err error) {
				c := o.own(args...)
				err = beside(c, func() error {
					m, err := during(c, func() (err error) { cpu, err = o.cpuOf(l); return err })
					sum = total(m)
					if o.each {
						explain(append(c.args, "over", l.name), m, o.units(l))
					}
					return err
				})
				return sum, err
			}
			flows, err := run("flows", "-i", "1")
			if err != nil {
				return nil, err
			}
			beneath := func(sum cost) float64 { return flows.ns + (sum.runs-flows.runs)*empty[l] }
			all, err := run("top")
			if err != nil {
				return nil, err
			}
			n := o.units(l)
			top[l].Own, top[l].Other = append(top[l].Own, all.ns/n), append(top[l].Other, flows.ns/n)
			least[l].Own, least[l].Other = append(least[l].Own, all.ns/n), append(least[l].Other, beneath(all)/n)
			if l != requestLoad {
				continue
			}
			if all, err = run("why", "-d", "600"); err != nil {
				return nil, err
			}
			why.Own, why.Other = append(why.Own, 100*all.ns/cpu), append(why.Other, 100*beneath(all)/cpu)
			err = o.onHooks(whyLooks, func() (err error) { cpu, err = o.cpuOf(l); return err }, func(sum cost) {
				looks.Other = append(looks.Other, 100*(sum.ns+(all.runs-sum.runs)*empty[l])/cpu)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	looks.Own = why.Own
	return []figure{why, looks, *top[requestLoad], *least[requestLoad], *top[sessionLoad], *least[sessionLoad]}, nil
}
