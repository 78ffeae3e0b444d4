// SPDX-License-Identifier: Apache-2.0

package main

// topCosts measures the tools of top beside flows alone, over requests and over sessions.
func topCosts(o *options) ([]figure, error) {
	loads := []*load{requestLoad, sessionLoad}
	out := []figure{{What: "top: BPF per request"}, {What: "top: BPF per session"}}
	for i := range out {
		out[i].Unit, out[i].Beside, out[i].Goal = "ns", "flows alone", &goal{Bound: 1.3, Ratio: true}
	}
	for range o.rounds {
		for i, l := range loads {
			for _, s := range []struct {
				c  *child
				to *[]float64
			}{{o.own("flows", "-i", "1"), &out[i].Other}, {o.own("top"), &out[i].Own}} {
				err := beside(s.c, func() error {
					m, err := during(s.c, func() error { _, err := o.cpuOf(l); return err })
					*s.to = append(*s.to, total(m).ns/o.units(l))
					if o.each {
						explain(append(s.c.args, "over", l.name), m, o.units(l))
					}
					return err
				})
				if err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}
