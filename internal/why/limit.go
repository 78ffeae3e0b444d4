// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"

	"seine/internal/watch"
)

// limitRules are about resources that processes run out of.
var limitRules = []Rule{
	{
		Class: "ports-exhausted", Short: "no local port is left for connects", Looks: "results of connect, sockets in TIME_WAIT", Threshold: "one connect", Severity: "bad",
		Sure: "certain: connect says so", Needs: []string{"soconnect"},
		Advice: "reuse connections, widen net.ipv4.ip_local_port_range, or connect to more addresses",
		find:   noPorts,
	},
	{
		Class: "fds-exhausted", Short: "a process has no file descriptor left", Looks: "results of accept and socket, and the machine's open files",
		Threshold: "one accept or socket that fails with EMFILE or ENFILE, or 95 % of fs.file-max in use", Severity: "bad",
		Sure: "certain: the call says so", Needs: []string{"soaccept", "soconnect", watch.Counters}, Any: true,
		Advice: "raise the limit (LimitNOFILE= in systemd, ulimit -n), or find descriptors that the process does not close",
		find:   noFiles,
	},
}

func noPorts(j *judge) []*Finding {
	all := j.connects(1, Certain, "connect says so", "without a local port", func(t *watch.Tally) bool { return t.What == "EADDRNOTAVAIL" && t.Raddr.IsValid() })
	for _, f := range all {
		f.Severity = Bad
		if ports := j.Gauges[watch.CounterKey{Netns: f.Object.Netns, Name: watch.PortsMost}]; ports.Last > 0 {
			f.add("ports for clients", ports.Last, "", "net.ipv4.ip_local_port_range")
			f.add("sockets in TIME_WAIT", j.Gauges[watch.CounterKey{Netns: f.Object.Netns, Name: watch.TCPTimeWait}].Most, "", "sockstat")
		}
	}
	return all
}

func noFiles(j *judge) (all []*Finding) {
	servers := map[watch.Who]*Finding{}
	for _, t := range j.Tallied(watch.Accepting) {
		if !noFD(t) {
			continue
		}
		f := j.finding(service(t.Service()), Bad, float64(t.Count)*10)
		f.Object.PID = t.PID
		f.Title = fmt.Sprintf("accept failed %d times with %s", t.Count, t.What)
		f.add("accepts that failed with "+t.What, float64(t.Count), "", "soaccept")
		f.sure(Certain, "accept says so")
		f.Next = command("soaccept", t.Service())
		servers[t.Who] = f
		all = append(all, f)
	}
	all = append(all, j.noSockets(servers)...)
	used, most := j.Gauges[watch.CounterKey{Name: watch.FilesOpen}].Most, j.Gauges[watch.CounterKey{Name: watch.FilesMost}].Last
	if most > 0 && used >= 0.95*most {
		f := j.finding(Object{Name: Machine}, Bad, used)
		f.Title = fmt.Sprintf("%.0f of %.0f files that the machine allows are open", used, most)
		f.add("open files", used, "", "fs.file-nr").add("limit", most, "", "fs.file-max")
		f.sure(Certain, "the kernel counts them")
		f.Next = "seine soconnect --errors"
		all = append(all, f)
	}
	return all
}

// noFD reports whether a call failed because no descriptor was left.
func noFD(t *watch.Tally) bool { return t.What == "EMFILE" || t.What == "ENFILE" }

// noSockets finds processes whose calls of socket found no descriptor left. If the accepts of the
// process failed too, that finding gets the evidence.
func (j *judge) noSockets(servers map[watch.Who]*Finding) (all []*Finding) {
	type process struct {
		watch.Who
		what string
	}
	sums, order := map[process]*watch.Tally{}, []process{}
	for _, t := range j.Tallied(watch.NoSocket) { // one of each protocol
		if !noFD(t) {
			continue
		}
		k := process{t.Who, t.What}
		if sums[k] == nil {
			sums[k] = &watch.Tally{}
			order = append(order, k)
		}
		sums[k].Count += t.Count
		sums[k].PID = max(sums[k].PID, t.PID)
	}
	for _, k := range order {
		n := sums[k].Count
		f := servers[k.Who]
		if f == nil {
			name := cmp.Or(k.Comm, "an unknown process")
			f = j.finding(object(name, watch.ServiceKey{Who: k.Who}), Bad, float64(n)*10)
			f.Object.PID = sums[k].PID
			f.Title = fmt.Sprintf("socket failed %d times with %s", n, k.what)
			f.sure(Certain, "socket says so")
			f.Next = command("soconnect --errors", watch.ServiceKey{Who: k.Who})
			all = append(all, f)
		}
		f.add("calls of socket that failed with "+k.what, float64(n), "", "soconnect")
	}
	return all
}
