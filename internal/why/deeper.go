// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"seine/internal/watch"
)

// mostDeeper is how many services are looked at more closely.
const mostDeeper = 4

// Deeper returns the command lines of tools that look more closely at what is suspicious. They
// cost too much to run always. For a service that spends its time in the network, the tool shows
// whether it waits for its send buffer. For turns that wait as long as a delayed acknowledgement
// takes, it shows whether Nagle's algorithm holds writes back. The slowest services come first.
// Then come the tools of rules that have found something in the kernel's counters, and last the
// one that sees the names of servers.
func Deeper(v *watch.View, o Options) (lines []string) {
	j := &judge{View: v, Options: o.filled()}
	all := slices.Clone(v.Services)
	slices.SortStableFunc(all, func(a, b *watch.Service) int { return cmp.Compare(b.Turn.Quantile(0.99), a.Turn.Quantile(0.99)) })
	for _, s := range all {
		if line := j.deeper(s); line != "" && len(lines) < mostDeeper {
			lines = append(lines, line)
		}
	}
	lines = append(lines, j.ofRules()...)
	if addrs := j.nameless(all); len(addrs) > 0 {
		lines = append(lines, "sni --raddr "+strings.Join(addrs, ","))
	}
	return lines
}

// nameless are the addresses of slow servers whose names are not known. Programs give names to
// servers in TLS handshakes.
func (j *judge) nameless(all []*watch.Service) (addrs []string) {
	for _, s := range all {
		a := s.Raddr.String()
		if s.Out && suspect(s) && s.Turn.Quantile(0.99)/1000 >= j.Slow && j.Name(s.Who, s.Raddr) == "" && len(addrs) < mostDeeper && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// suspect reports whether a service has enough turns for a closer look.
func suspect(s *watch.Service) bool { return s.Turn.Count >= fewTurns/4 && !s.Mixed() }

// ofRules are the command lines of rules that have found something.
func (j *judge) ofRules() (lines []string) {
	for i := range Rules {
		if j.rule = &Rules[i]; j.rule.closer == nil || j.rule.unasked(j.View) != "" {
			continue
		}
		if found := j.rule.find(j); len(found) > 0 {
			lines = append(lines, j.rule.closer(found))
		}
	}
	return lines
}

// deeper is the command line for one service, empty if no tool is needed.
func (j *judge) deeper(s *watch.Service) string {
	if !suspect(s) {
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
// them, and adds what only tools of a closer look count, and the names that they saw.
func Adopt(v, closer *watch.View) {
	v.Closer = closer.Seconds()
	known := v.Name
	v.Name = func(who watch.Who, addr netip.Addr) string { return cmp.Or(known(who, addr), closer.Name(who, addr)) }
	for _, kind := range []watch.Kind{watch.Held, watch.Queued, watch.Overflow, watch.Marked} {
		v.Tallies = append(v.Tallies, closer.Tallied(kind)...)
	}
	for i, s := range v.Services {
		for _, c := range closer.Services {
			if c.ServiceKey == s.ServiceKey && c.Turn.Count >= fewTurns {
				v.Services[i] = c
			}
		}
	}
}
