// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"net/netip"

	"seine/internal/kern"
	"seine/internal/watch"
)

// dnsRules are about name lookups.
var dnsRules = []Rule{
	{
		Class: "dns-slow", Short: "a DNS server answers slowly", Looks: "response times of a DNS server", Threshold: "five answers, and one in ten takes longer than --slow (100 ms)",
		Severity: "warn; bad from five times --slow on", Sure: "certain: the time from query to answer was measured", Needs: []string{"dns"},
		Advice: "use a server that is nearer, or run a cache on this machine (systemd-resolved, dnsmasq, unbound)",
		find:   slowNames,
	},
	{
		Class: "dns-failing", Short: "a DNS server fails or does not answer", Looks: "response codes of a DNS server, and queries without an answer",
		Threshold: "three failed queries, and a tenth of all: no answer in time, SERVFAIL, REFUSED, FORMERR or NOTIMP", Severity: "warn; bad if half of the queries fail",
		Sure: "certain: the response code says so, or there was no answer", Needs: []string{"dns"},
		Advice: "check the server and the path to it: a resolver waits five seconds for an answer, then retries or asks the next server of /etc/resolv.conf",
		find:   failingNames,
	},
}

// resolver sums up the queries to one DNS server.
type resolver struct {
	addr         netip.Addr
	port         uint16
	all          uint64
	unanswered   uint64
	failed       map[string]uint64
	took         kern.Hist
	example      string
	retries      uint64
	asked        map[watch.Who]bool
	lateQuestion string
}

// waited is the age in microseconds at which a pending query counts as unanswered.
const waited = 2_000_000

func (j *judge) resolvers() (out []*resolver) {
	by := map[netip.AddrPort]*resolver{}
	for _, t := range j.Tallied(watch.Query) {
		if t.What == "pending" && t.Took.Max < waited {
			continue
		}
		k := netip.AddrPortFrom(t.Raddr, t.Rport)
		r := by[k]
		if r == nil {
			r = &resolver{addr: t.Raddr, port: t.Rport, failed: map[string]uint64{}, asked: map[watch.Who]bool{}}
			by[k] = r
			out = append(out, r)
		}
		r.all += t.Count
		r.retries = max(r.retries, t.InARow)
		r.asked[t.Who] = true
		switch t.What {
		case "TIMEOUT", "pending":
			r.unanswered += t.Count
			r.lateQuestion = max(r.lateQuestion, t.Example)
		case "SERVFAIL", "REFUSED", "FORMERR", "NOTIMP":
			r.failed[t.What] += t.Count
			r.lateQuestion = max(r.lateQuestion, t.Example)
		default:
			r.example = max(r.example, t.Example)
		}
		if t.What != "pending" {
			t.Took.AddTo(&r.took)
		}
	}
	return out
}

// object is the server, and the process that asked it if there was only one.
func (r *resolver) object() Object {
	o := Object{Name: "DNS server " + watch.Endpoint(r.addr, r.port), Raddr: r.addr, Rport: r.port}
	if r.port == 53 {
		o.Name = "DNS server " + r.addr.String()
	}
	if len(r.asked) == 1 {
		for who := range r.asked {
			o.Who = who
		}
	}
	return o
}

func (r *resolver) next() string {
	return command("dns", watch.ServiceKey{Out: true, Raddr: r.addr, Rport: r.port})
}

func slowNames(j *judge) (all []*Finding) {
	for _, r := range j.resolvers() {
		p90 := r.took.Quantile(0.9) / 1000
		if r.took.Count < 5 || p90 < j.Slow {
			continue
		}
		f := j.finding(r.object(), worse(p90 >= 5*j.Slow), p90)
		f.Title = fmt.Sprintf("one answer in ten takes %.0f ms or more", p90)
		f.add("p90 of an answer", p90, "ms", "dns").add("answers", float64(r.took.Count), "", "dns").add("longest", float64(r.took.Max)/1000, "ms", "dns")
		f.sure(Certain, "the time from query to answer was measured")
		f.Next = r.next()
		all = append(all, f)
	}
	return all
}

func failingNames(j *judge) (all []*Finding) {
	for _, r := range j.resolvers() {
		n := r.unanswered
		for _, c := range r.failed {
			n += c
		}
		if n < 3 || 10*n < r.all {
			continue
		}
		f := j.finding(r.object(), worse(2*n >= r.all), float64(n)*100)
		f.Title = fmt.Sprintf("%d of %d queries failed, such as %s", n, r.all, r.lateQuestion)
		f.add("queries", float64(r.all), "", "dns").add("without an answer", float64(r.unanswered), "", "dns")
		for _, code := range []string{"SERVFAIL", "REFUSED", "FORMERR", "NOTIMP"} {
			if c := r.failed[code]; c > 0 {
				f.add(code, float64(c), "", "dns")
			}
		}
		f.sure(Certain, "the response code says so, or there was no answer")
		f.Next = r.next()
		all = append(all, f)
	}
	return all
}
