// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

// pathRules are about the path between the two ends.
var pathRules = []Rule{
	{
		Class: "path", Short: "the path is slow", Looks: "part network of a service's turns",
		Threshold: turnsAsked, Severity: turnsBad, Sure: "likely: the rule cannot tell round trips, the congestion window and pacing apart",
		Needs: []string{"flows"}, Advice: "compare srtt_us with min_rtt_us: if they are equal, the path is long; otherwise packets queue on it",
		find: slowPath,
	},
	{
		Class: "delayed-ack", Short: "small writes wait for delayed acknowledgements", Looks: "the time that a turn spends in the network, or that a server waits for the rest of a request, and delayed acknowledgements",
		Threshold: "at least 20 turns without a retransmission, whose mean wait is 35 to 70 ms or 190 to 260 ms: in sending, or for the rest of a request while this machine delays acknowledgements",
		Severity:  "warn", Sure: "certain if a closer look (tcpnagle) sees ten writes held back; likely if this machine delayed as many acknowledgements; else possible",
		Needs: []string{"flows"}, Advice: "write each message with one call, or set TCP_NODELAY: Nagle's algorithm holds the second small write back until the first is acknowledged",
		find: delayedAck,
	},
	{
		Class: "local-queue", Short: "packets queue on this machine before they are sent", Looks: "drops and backlog of queueing disciplines, by device; a closer look (qdisclat) measures how long packets wait",
		Threshold: "ten packets dropped, or a backlog of 256 KB", Severity: "warn",
		Sure:  "certain for drops, and if one packet in a hundred waits a tenth of --slow (10 ms) or longer; else likely, because senders may fill a queue without harm",
		Needs: []string{watch.Counters}, Advice: "the senders are faster than the device or its shaper: raise its rate, or send less",
		find: localQueue,
		closer: func(found []*Finding) string {
			line := "qdisclat -i 1 --by dev,netns"
			if len(found) == 1 {
				line = bare(onDevice(line, found[0].Object.Name))
			}
			return line
		},
	},
}

// perTurn is the mean time of a part of a turn, in milliseconds.
func perTurn(s *watch.Service, part watch.Part) float64 {
	if s.Turn.Count == 0 {
		return 0
	}
	return s.Parts[part] / float64(s.Turn.Count)
}

// delays returns how many milliseconds turns wait, if that is as long as a delayed
// acknowledgement takes, else 0. They wait in sending or, at a server, for the rest of a request.
func (j *judge) delays(s *watch.Service) (ms float64) {
	few := s.Turn.Count < fewTurns || s.Mixed() || s.Retrans > 0 || s.TX/s.Turn.Count >= 3000 || s.Turn.Quantile(0.5) < 35_000
	fits := func(part watch.Part) bool {
		ms = perTurn(s, part)
		return blame(&s.Parts, part) >= verdict && (ms >= 35 && ms <= 70 || ms >= 190 && ms <= 260)
	}
	if !few && (fits(watch.Network) || !s.Out && j.delayed(s) && fits(watch.Receiving)) {
		return ms
	}
	return 0
}

// delayed reports whether the namespace of a service delayed at least one acknowledgement for
// every two turns.
func (j *judge) delayed(s *watch.Service) bool {
	return uint64(j.Counters[watch.CounterKey{Netns: s.Netns, Name: delayedACKs}]) >= s.Turn.Count/2
}

// heldBack is how many small writes to a service a closer look saw held back until an
// acknowledgement came.
func (j *judge) heldBack(s *watch.Service) (n uint64) {
	for _, t := range j.Tallied(watch.Held) {
		here := !s.Out && t.Rport == s.Lport && j.Local.In(t.Netns, t.Raddr, s.Netns)
		if t.What == "nagle" && (here || s.Out && t.Service() == s.ServiceKey) {
			n += t.Count
		}
	}
	return n
}

const delayedACKs = "TcpExtDelayedACKs"

func slowPath(j *judge) (all []*Finding) {
	for _, s := range j.Services {
		if s.Mixed() || j.delays(s) > 0 {
			continue
		}
		if f := j.slow(s, watch.Network); f != nil {
			f.sure(Likely, "the rule cannot tell round trips, the congestion window and pacing apart")
			f.add("bytes sent in a turn", float64(s.TX)/float64(s.Turn.Count), "bytes", "flows")
			all = append(all, f)
		}
	}
	return all
}

func delayedAck(j *judge) (all []*Finding) {
	for _, s := range j.Services {
		ms := j.delays(s)
		if ms == 0 {
			continue
		}
		f := j.finding(service(s.ServiceKey), Warn, ms)
		f.Title = fmt.Sprintf("a turn waits %.0f ms for an acknowledgement", ms)
		f.add("time that a turn waits", ms, "ms", "flows").add("turns", float64(s.Turn.Count), "", "flows").add("bytes sent in a turn", float64(s.TX)/float64(s.Turn.Count), "bytes", "flows")
		f.sure(Possible, "a path with that delay looks the same")
		if j.delayed(s) || uint64(j.Grown(delayedACKs)) >= s.Turn.Count/2 {
			f.sure(Likely, "this machine delayed as many acknowledgements").add("delayed acknowledgements", float64(j.Grown(delayedACKs)), "", delayedACKs)
		}
		if n := j.heldBack(s); n >= 10 {
			f.sure(Certain, "Nagle's algorithm held writes back").add("writes held back", float64(n), "", "tcpnagle").within(j.Closer)
		}
		f.Next = command("tcpnagle", s.ServiceKey)
		all = append(all, f)
	}
	return all
}

func localQueue(j *judge) (all []*Finding) {
	for _, q := range j.byDevice() {
		if q.dropped < 10 && q.backlog < 256<<10 {
			continue
		}
		f := j.finding(Object{Name: q.dev, Who: watch.Who{Netns: q.netns}}, Warn, float64(q.dropped)+q.backlog/1500)
		f.Title = fmt.Sprintf("%d packets dropped by the queue, up to %.0f KB waiting", q.dropped, q.backlog/1024)
		f.add("packets dropped", float64(q.dropped), "", "qdisc").add("bytes waiting at most", q.backlog, "bytes", "qdisc")
		wait := j.queued(q) / 1000
		if wait > 0 {
			f.Title += fmt.Sprintf(", p99 of the wait %.3g ms", wait)
			f.add("p99 of the time that a packet waits", wait, "ms", "qdisclat").within(j.Closer)
		}
		switch {
		case q.dropped >= 10:
			f.sure(Certain, "the queue counts them")
		case wait >= j.Slow/10:
			f.sure(Certain, "packets wait there")
		default:
			f.sure(Likely, "senders may fill a queue without harm")
		}
		f.Next = onDevice("qdisclat", q.dev)
		all = append(all, f)
	}
	return all
}

// queued is the p99 of the time that packets wait in the queues of a device, in microseconds: that of
// the queue in which they wait longest. It is 0 if no closer look has measured it.
func (j *judge) queued(q *device) (us float64) {
	for _, t := range j.Tallied(watch.Queued) {
		if t.Dev == q.dev && t.Netns == q.netns {
			us = max(us, t.Took.Quantile(0.99))
		}
	}
	return us
}
