// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

// queueRules are about the queues of listeners.
var queueRules = []Rule{
	{
		Class: "accept-queue", Short: "the accept queue of a listener is full", Looks: "drops at a listener, by queue", Threshold: "one drop", Severity: "bad",
		Sure: "certain: the kernel has no other reason to drop there", Needs: []string{"tcpsynbl"},
		Advice: "the process accepts too slowly, or its backlog is too small: give listen(2) a larger one, and raise net.core.somaxconn",
		find:   func(j *judge) []*Finding { return j.queues("accept") },
	},
	{
		Class: "syn-queue", Short: "the SYN queue of a listener is full", Looks: "drops at a listener, by queue", Threshold: "one drop", Severity: "bad",
		Sure: "certain: the kernel has no other reason to drop there", Needs: []string{"tcpsynbl"},
		Advice: "many handshakes are not completed, by a SYN flood or because answers are lost: set net.ipv4.tcp_syncookies=1, raise net.ipv4.tcp_max_syn_backlog",
		find:   func(j *judge) []*Finding { return j.queues("syn") },
	},
}

func (j *judge) queues(queue string) (all []*Finding) {
	for _, t := range j.Tallied(watch.QueueFull) {
		if t.What != queue {
			continue
		}
		f := j.finding(service(t.Service()), Bad, float64(t.Count)*100)
		f.Object.PID = t.PID
		f.Title = fmt.Sprintf("%d dropped at its full %s queue of %d", t.Count, queue, t.Limit)
		f.add("dropped at the "+queue+" queue", float64(t.Count), "", "tcpsynbl").add("limit of the queue", float64(t.Limit), "", "tcpsynbl")
		f.sure(Certain, "the kernel has no other reason to drop there")
		f.Next = fmt.Sprintf("seine tcpsynbl --lport %d", t.Lport)
		all = append(all, f)
	}
	return all
}
