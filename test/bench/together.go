// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"seine/internal/lab"
)

// ten are tools that run together for a long time.
var ten = []string{"tcplife", "tcpretrans", "tcpdrop", "skbdrop", "soconnect", "gethostlatency", "tcpsynbl", "tcpstates", "udplife", "tcpaccept"}

// resting is how long ten tools are watched while there is no load.
const resting = 10 * time.Second

// together measures ten tools in one process: beside the most expensive of them alone,
// and without a load.
func together(o *options) ([]figure, error) {
	loads := []*load{requestLoad, sessionLoad}
	part, least, floor, apart := map[*load]*figure{}, map[*load]*figure{}, map[*load]*figure{}, map[*load]*figure{}
	for _, l := range loads {
		least[l] = &figure{What: "ten tools: the same over " + l.name, Unit: "%", Beside: "empty as often"}
		floor[l] = &figure{What: "ten tools: their least, over " + l.name, Unit: "%", Beside: "that of tcpstates"}
		apart[l] = &figure{What: "ten tools: the same in programs of each, over " + l.name, Unit: "%", Beside: "that of tcpstates"}
		part[l] = &figure{What: "ten tools: BPF, of the CPU of " + l.name, Unit: "%", Beside: "the dearest alone", Goal: &goal{Bound: 1.5, Ratio: true}}
	}
	memory := figure{What: "ten tools: peak resident memory", Unit: "MB", Goal: &goal{Bound: 60}}
	idle := figure{What: "ten tools: own CPU without a load, of a core", Unit: "%", Goal: &goal{Bound: 0.5}}
	up := figure{What: "ten tools: start-up", Unit: "ms"}
	if lab.Emulated() {
		memory.Goal, idle.Goal = nil, nil
	}
	for range o.rounds {
		each, err := o.floors()
		if err != nil {
			return nil, err
		}
		for _, l := range loads {
			of := map[string]float64{}
			for name, hooks := range map[string][]*empty{"ten": leastTogether, "apart": leastApart, "one": leasts["tcpstates"]} {
				if of[name], err = o.leastOf(l, hooks); err != nil {
					return nil, err
				}
			}
			floor[l].Own, floor[l].Other = append(floor[l].Own, of["ten"]), append(floor[l].Other, of["one"])
			apart[l].Own, apart[l].Other = append(apart[l].Own, of["apart"]), append(apart[l].Other, of["one"])
		}
		all := o.own(append([]string{"with"}, ten...)...)
		err = beside(all, func() error {
			up.Own = append(up.Own, all.took.Seconds()*1000)
			before, err := all.cpu()
			if err != nil {
				return err
			}
			time.Sleep(resting)
			after, err := all.cpu()
			if err != nil {
				return err
			}
			idle.Own = append(idle.Own, 100*(after-before)/float64(resting))
			for _, l := range loads {
				took, runs, err := o.shareOf(all, l)
				if err != nil {
					return err
				}
				part[l].Own, least[l].Own = append(part[l].Own, took), append(least[l].Own, took)
				least[l].Other = append(least[l].Other, runs*each[l])
			}
			peak, err := all.peak()
			memory.Own = append(memory.Own, peak/mega)
			return err
		})
		if err != nil {
			return nil, err
		}
		most := map[*load]float64{}
		for _, name := range ten {
			one := o.own(name)
			err := beside(one, func() error {
				for _, l := range loads {
					took, _, err := o.shareOf(one, l)
					if err != nil {
						return err
					}
					most[l] = max(most[l], took)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		for _, l := range loads {
			part[l].Other = append(part[l].Other, most[l])
		}
	}
	return []figure{up, memory, idle, *part[requestLoad], *least[requestLoad], *floor[requestLoad], *apart[requestLoad], *part[sessionLoad], *least[sessionLoad], *floor[sessionLoad], *apart[sessionLoad]}, nil
}

// leastOf is the share of least programs in the CPU time of a load, in percent.
func (o *options) leastOf(l *load, hooks []*empty) (share float64, err error) {
	var cpu float64
	run := func() (err error) { cpu, err = o.cpuOf(l); return err }
	err = o.onHooks(hooks, run, func(sum cost) { share = 100 * sum.ns / cpu })
	return share, err
}

// shareOf is the share of the programs of c in the CPU time of a load, in percent, and
// the share for each nanosecond of a run.
func (o *options) shareOf(c *child, l *load) (took, runs float64, err error) {
	var cpu float64
	m, err := during(c, func() (err error) { cpu, err = o.cpuOf(l); return err })
	if err == nil && o.each {
		explain(append(c.args, "over", l.name), m, o.units(l))
	}
	sum := total(m)
	return 100 * sum.ns / cpu, 100 * sum.runs / cpu, err
}
