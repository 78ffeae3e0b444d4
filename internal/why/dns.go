// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"net/netip"

	"seine/internal/kern"
	"seine/internal/watch"
)

// dnsRules are about names.
var dnsRules = []Rule{
	{
		Class: "dns-slow", Short: "a DNS server answers slowly", Looks: "answers of a DNS server", Threshold: "five answers, one in ten later than --slow (100 ms)",
		Severity: "warn; bad from five times --slow on", Sure: "certain: time from query to answer", Needs: []string{"dns"},
		Advice: "ask a server that is nearer, or let a cache on this machine answer (systemd-resolved, dnsmasq, unbound)",
		find:   slowNames,
	},
	{
		Class: "dns-failing", Short: "a DNS server does not answer, or fails", Looks: "answers of a DNS server by code, queries without an answer",
		Threshold: "three, and a tenth of the queries: no answer in time, SERVFAIL or REFUSED", Severity: "bad from half of the queries on, else warn",
		Sure: "certain: the answer's code, or that there was none", Needs: []string{"dns"},
		Advice: "look at the server, or at the path to it: a resolver waits five seconds for an answer, then asks again or asks the next server of /etc/resolv.conf",
		find:   failingNames,
	},
}

// resolver is what a DNS server did.
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

// waited is after how many microseconds a query that has no answer counts as without one.
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
			r.took.Merge(&t.Took)
		}
	}
	return out
}

// object is the server, and who asked it if that was one process.
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
		f.sure(Certain, "from query to answer")
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
		f.sure(Certain, "the answer's code, or that there was none")
		f.Next = r.next()
		all = append(all, f)
	}
	return all
}
