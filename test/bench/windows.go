// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// windowCosts measures the tools of why and of top beside flows, which is one of them. The least that the others can cost
// is that of empty programs that run as often.
func windowCosts(o *options) ([]figure, error) {
	const floor = "flows, and empty programs"
	why := figure{What: "why: BPF, of the CPU of requests", Unit: "%", Beside: floor, Goal: &goal{Bound: 5}}
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
		}
	}
	return []figure{why, *top[requestLoad], *least[requestLoad], *top[sessionLoad], *least[sessionLoad]}, nil
}
