// SPDX-License-Identifier: Apache-2.0

package why

import (
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
		Class: "fds-exhausted", Short: "a process has no file descriptor left", Looks: "results of accept, and the machine's open files",
		Threshold: "one accept that fails with EMFILE or ENFILE, or 95 % of fs.file-max in use", Severity: "bad",
		Sure: "certain: accept says so", Needs: []string{"soaccept", watch.Counters}, Any: true,
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
	for _, t := range j.Tallied(watch.Accepting) {
		if t.What != "EMFILE" && t.What != "ENFILE" {
			continue
		}
		f := j.finding(service(t.Service()), Bad, float64(t.Count)*10)
		f.Object.PID = t.PID
		f.Title = fmt.Sprintf("accept failed %d times with %s", t.Count, t.What)
		f.add("accepts that failed with "+t.What, float64(t.Count), "", "soaccept")
		f.sure(Certain, "accept says so")
		f.Next = command("soaccept", t.Service())
		all = append(all, f)
	}
	used, most := j.Gauges[watch.CounterKey{Name: watch.FilesOpen}].Most, j.Gauges[watch.CounterKey{Name: watch.FilesMost}].Last
	if most > 0 && used >= 0.95*most {
		f := j.finding(Object{Name: Machine}, Bad, used)
		f.Title = fmt.Sprintf("%.0f of %.0f files that the machine allows are open", used, most)
		f.add("open files", used, "", "fs.file-nr").add("limit", most, "", "fs.file-max")
		f.sure(Certain, "the kernel counts them")
		f.Next = "seine soaccept --where 'errno != nil'"
		all = append(all, f)
	}
	return all
}
