// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"slices"
	"strings"

	"seine/internal/watch"
)

// mostDeeper is how many services are looked at more closely.
const mostDeeper = 4

// Deeper returns the command lines of tools that look more closely at suspicious services. They
// cost too much to run for every service. For a service that spends its time in the network, the
// tool shows whether it waits for its send buffer. For turns that wait as long as a delayed
// acknowledgement takes, it shows whether Nagle's algorithm holds writes back. The slowest
// services come first.
func Deeper(v *watch.View, o Options) (lines []string) {
	j := &judge{View: v, Options: o.filled()}
	all := slices.Clone(v.Services)
	slices.SortStableFunc(all, func(a, b *watch.Service) int { return cmp.Compare(b.Turn.Quantile(0.99), a.Turn.Quantile(0.99)) })
	for _, s := range all {
		if line := j.deeper(s); line != "" && len(lines) < mostDeeper {
			lines = append(lines, line)
		}
	}
	return lines
}

// deeper is the command line for one service, empty if no tool is needed.
func (j *judge) deeper(s *watch.Service) string {
	if s.Turn.Count < fewTurns/4 || s.Mixed() {
		return ""
	}
	if j.delays(s) > 0 {
		k := s.ServiceKey
		if !k.Out { // its clients, if they are here
			k = watch.ServiceKey{Out: true, Rport: k.Lport}
		}
		return bare(command("tcpnagle --view held -i 1 --by comm,raddr,rport,netns", k))
	}
	if s.TX/s.Turn.Count >= 16<<10 && s.Turn.Quantile(0.99)/1000 >= j.Slow && s.Parts.Share(watch.Network) >= 0.3 {
		return bare(command("flows --exact -i 1", s.ServiceKey))
	}
	return ""
}

// bare is a command line without the word seine.
func bare(command string) string { return strings.TrimPrefix(command, "seine ") }

// Adopt replaces services of a view by those of a closer look that saw enough turns to judge
// them, and adds the writes that the closer look saw held back.
func Adopt(v, closer *watch.View) {
	v.Tallies = append(v.Tallies, closer.Tallied(watch.Held)...)
	for i, s := range v.Services {
		for _, c := range closer.Services {
			if c.ServiceKey == s.ServiceKey && c.Turn.Count >= fewTurns {
				v.Services[i] = c
			}
		}
	}
}
