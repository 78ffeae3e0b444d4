// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

// connectRules are about connections that are not established.
var connectRules = []Rule{
	{
		Class: "connect-refused", Short: "connects are refused", Looks: "results of connect", Threshold: "three connects in the window, by one process to one address",
		Severity: "warn; bad from 20 on", Sure: "certain: the peer's answer says so", Needs: []string{"soconnect"},
		Advice: "no process listens there: start the service, or correct the address and port that the client uses",
		find: func(j *judge) []*Finding {
			return j.connects(3, Certain, "the peer's answer says so", "refused", func(t *watch.Tally) bool { return t.What == "ECONNREFUSED" })
		},
	},
	{
		Class: "connect-unanswered", Short: "connects get no answer", Looks: "results and ages of connects, retransmitted SYNs",
		Threshold: "one connect that timed out or has waited for a second, by one process to one address", Severity: "warn; bad from 20 on",
		Sure: "certain: SYNs were sent and nothing came back", Needs: []string{"soconnect"},
		Advice: "a firewall drops the SYNs, the peer is down, or its accept queue is full",
		find: func(j *judge) []*Finding {
			return j.connects(1, Certain, "SYNs were sent and nothing came back", "unanswered", func(t *watch.Tally) bool {
				waited := t.Took.Max >= 900_000 // the first SYN is sent again after a second
				return t.What == "ETIMEDOUT" || (t.What == "pending" || t.What == "ECANCELED") && waited
			})
		},
	},
	{
		Class: "connect-unreachable", Short: "connects cannot reach their address", Looks: "results of connect",
		Threshold: "three connects in the window, by one process to one address", Severity: "warn; bad from 20 on; info for IPv6 without a route, because programs try IPv6 first",
		Sure: "certain: this machine's routes, or a router's ICMP, say so", Needs: []string{"soconnect"},
		Advice: "check the route (ip route get ADDRESS), the neighbours (ip neigh), and the routers on the path",
		find: func(j *judge) []*Finding {
			all := j.connects(3, Certain, "this machine's routes, or a router's ICMP, say so", "unreachable", func(t *watch.Tally) bool {
				return t.What == "ENETUNREACH" || t.What == "EHOSTUNREACH"
			})
			for _, f := range all {
				if f.Object.Raddr.Is6() {
					f.Severity = Info
				}
			}
			return all
		},
	},
}

// connects finds connects with one kind of result. It leaves out UDP: glibc connects UDP
// sockets to sort addresses, and those connects often fail without harm.
func (j *judge) connects(least uint64, sure Confidence, reason, word string, is func(*watch.Tally) bool) (all []*Finding) {
	type sum struct {
		n, most uint64
		pid     uint32
	}
	by := map[watch.ServiceKey]*sum{}
	var order []watch.ServiceKey
	for _, t := range j.Tallied(watch.Connecting) {
		if !is(t) || t.Note == "udp" || t.Rport == 0 && t.What != "EADDRNOTAVAIL" {
			continue
		}
		k := t.Service()
		if by[k] == nil {
			by[k] = &sum{}
			order = append(order, k)
		}
		s := by[k]
		s.n += t.Count
		s.most = max(s.most, t.Took.Max)
		s.pid = max(s.pid, t.PID)
	}
	for _, k := range order {
		s := by[k]
		if s.n < least {
			continue
		}
		f := j.finding(service(k), worse(s.n >= 20), float64(s.n))
		f.Object.PID = s.pid
		f.Title = fmt.Sprintf("%s %s", connectsOf(s.n), word)
		f.add("connects "+word, float64(s.n), "", "soconnect").add("longest", float64(s.most)/1000, "ms", "soconnect")
		f.sure(sure, reason)
		f.Next = command("soconnect", k)
		all = append(all, f)
	}
	return all
}

func connectsOf(n uint64) string {
	if n == 1 {
		return "1 connect"
	}
	return fmt.Sprintf("%d connects", n)
}
