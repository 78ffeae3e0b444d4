// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

// resetRules are about connections that end with a reset.
var resetRules = []Rule{{
	Class: "resets", Short: "connections are reset", Looks: "how sessions end, which side reset them, and how old they were",
	Threshold: "five resets of a service, and a tenth of its sessions that ended", Severity: "warn", Sure: "certain: the resets were seen; the rule does not know why they were sent",
	Needs:  []string{"tcplife"},
	Advice: "reset by the peer: its process died, or closed the socket with data unread; reset by this side: this process did so; all at one age: a firewall or load balancer forgets idle connections",
	find:   resets,
}}

// never are the ends of connections that were never established.
var never = map[string]bool{"refused": true, "unreachable": true, "unanswered": true, "aborted": true}

func resets(j *judge) (all []*Finding) {
	type ends struct {
		by     map[string]uint64
		all    uint64
		lo, hi uint64
	}
	of := map[watch.ServiceKey]*ends{}
	var order []watch.ServiceKey
	for _, t := range j.Tallied(watch.Closed) {
		if never[t.Note] {
			continue
		}
		k := t.Service()
		e := of[k]
		if e == nil {
			e = &ends{by: map[string]uint64{}}
			of[k] = e
			order = append(order, k)
		}
		e.all += t.Count
		e.by[t.What] += t.Count
		if t.What != "" && t.Took.Count > 0 {
			if e.hi == 0 || t.Took.Min < e.lo {
				e.lo = t.Took.Min
			}
			e.hi = max(e.hi, t.Took.Max)
		}
	}
	for _, k := range order {
		e := of[k]
		local, remote := e.by["local"], e.by["remote"]
		n := local + remote
		if n < 5 || 10*n < e.all {
			continue
		}
		by := "the peer"
		if local > remote {
			by = "this side"
		}
		f := j.finding(service(k), Warn, float64(n))
		f.Title = fmt.Sprintf("%d of %d connections reset, most by %s", n, e.all, by)
		f.add("reset by the peer", float64(remote), "", "tcplife").add("reset by this side", float64(local), "", "tcplife").add("connections that ended", float64(e.all), "", "tcplife")
		f.add("youngest", float64(e.lo), "ms", "tcplife").add("oldest", float64(e.hi), "ms", "tcplife")
		f.sure(Certain, "the resets were seen")
		if e.lo >= 10_000 && float64(e.hi) <= 1.05*float64(e.lo) {
			f.Advice = fmt.Sprintf("all were reset at the age of %.0f s: look for a firewall or load balancer that forgets idle connections, and use keep-alive", float64(e.lo)/1000)
		}
		f.Next = command("tcplife", k)
		all = append(all, f)
	}
	return all
}
