// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

const (
	lossAsked  = "ten retransmissions of at least one in a thousand bytes sent that take a hundredth of the time of turns, or three that take a tenth of it; this cause costs most"
	lossBad    = "warn; bad if they take half of the time of turns"
	lossLooks  = "a service's retransmissions by cause, and part loss of its turns"
	lossAdvice = "find where segments are lost: packets that this machine drops are findings of their own; otherwise it is the path or the peer"
)

// lossRules are about retransmitted segments.
var lossRules = []Rule{
	{
		Class: "loss-fast", Short: "segments are lost and retransmitted at once", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "likely: the peer's acknowledgements show a gap, which reordering causes too", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("fast", Likely, "reordering looks the same at first") },
	},
	{
		Class: "loss-tail", Short: "the last segments of messages are lost", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "likely: the tail loss probe is also sent when an acknowledgement is only late", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("tlp", Likely, "a late acknowledgement looks the same") },
	},
	{
		Class: "loss-timeout", Short: "lost segments are retransmitted only after a timeout", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "certain: nothing came back for the whole timeout", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("rto", Certain, "nothing came back for a whole timeout") },
	},
	{
		Class: "loss-spurious", Short: "segments are retransmitted that had arrived", Looks: "duplicate SACKs received, against retransmissions of the network namespace",
		Threshold: "ten duplicate SACKs, and half as many as retransmissions", Severity: "warn", Sure: "certain: the peers say that the segments had arrived",
		Needs: []string{"tcpretrans", watch.Counters}, Advice: "nothing is lost: the path's delay varies, or packets are reordered; look at bonding, multipath and Wi-Fi",
		find: spurious,
	},
	{
		Class: "mtu-blackhole", Short: "large segments do not get through", Looks: "retransmissions after timeouts, by segment size",
		Threshold: "a segment of 1,221 bytes or more times out three times in a row, and no smaller one times out", Severity: "bad",
		Sure: "likely if the peer sent data meanwhile, else possible", Needs: []string{"tcpretrans"},
		Advice: "let ICMP 'fragmentation needed' through, or lower the MTU or the MSS (net.ipv4.tcp_mtu_probing=1 helps)",
		find:   blackholes,
	},
}

// lossy sums up the retransmissions of a service.
type lossy struct {
	key       watch.ServiceKey
	causes    map[string]uint64
	all, big  uint64
	bytes     uint64
	inARow    uint64 // timeouts
	largest   uint64
	smallOnes uint64 // timeouts of segments that fit any MTU
}

// lossy adds up the retransmissions of established connections.
func (j *judge) lossy() (out []*lossy) {
	by := map[watch.ServiceKey]*lossy{}
	for _, t := range j.Tallied(watch.Retransmit) {
		if handshake(t.Note) || t.What == "synack" {
			continue
		}
		k := t.Service()
		l := by[k]
		if l == nil {
			l = &lossy{key: k, causes: map[string]uint64{}}
			by[k] = l
			out = append(out, l)
		}
		l.causes[t.What] += t.Count
		l.all += t.Count
		l.bytes += t.Bytes
		if t.What == "rto" {
			l.big += t.Big
			l.smallOnes += t.Count - t.Big
			l.inARow = max(l.inARow, t.InARow)
			l.largest = max(l.largest, t.Segment)
		}
	}
	return out
}

// handshake reports whether a state comes before the connection is established.
func handshake(state string) bool {
	return state == "SYN_SENT" || state == "SYN_RECV" || state == "NEW_SYN_RECV"
}

// cost is how long a loss of each cause delays a connection, relative to the others.
var cost = map[string]uint64{"fast": 1, "tlp": 2, "rto": 5}

// cause is the cause that costs most.
func (l *lossy) cause() (most string) {
	for _, c := range []string{"rto", "tlp", "fast"} {
		if most == "" || l.causes[c]*cost[c] > l.causes[most]*cost[most] {
			most = c
		}
	}
	return most
}

// hole reports whether only large segments are lost, repeatedly.
func (l *lossy) hole() bool { return l.inARow >= 3 && l.big > 0 && l.smallOnes == 0 }

func (j *judge) losses(cause string, sure Confidence, reason string) (all []*Finding) {
	for _, l := range j.lossy() {
		share, sent, timed := 0.0, uint64(0), false
		for _, s := range j.Services {
			if s.ServiceKey == l.key {
				share, sent, timed = s.Parts.Share(watch.Loss), s.TX, s.Parts.Turns() > 0
			}
		}
		if share < 0.1 && l.bytes*1000 < sent || timed && share < 0.01 {
			continue // congestion control loses this much while it probes for bandwidth
		}
		if l.cause() != cause || l.hole() || l.all < 10 && (l.all < 3 || share < 0.1) || j.isSpurious(l.key.Netns) {
			continue
		}
		f := j.finding(service(l.key), worse(share >= 0.5), float64(l.all))
		f.Title = fmt.Sprintf("%d packets retransmitted, %.0f %% of the time of turns", l.all, share*100)
		f.add("packets retransmitted", float64(l.all), "", "tcpretrans")
		for _, c := range []string{"fast", "tlp", "rto"} {
			if n := l.causes[c]; n > 0 {
				f.add("of them "+c, float64(n), "", "tcpretrans")
			}
		}
		f.add("share of part loss", share*100, "%", "flows")
		f.sure(sure, reason)
		f.Next = command("tcpretrans -l", l.key)
		all = append(all, f)
	}
	return all
}

// isSpurious reports whether half of a namespace's retransmitted segments had arrived.
func (j *judge) isSpurious(netns uint32) bool { d, r := j.dsacks(netns); return d >= 10 && 2*d >= r }

func (j *judge) dsacks(netns uint32) (dsacks, retrans int64) {
	get := func(name string) int64 { return j.Counters[watch.CounterKey{Netns: netns, Name: name}] }
	return get("TcpExtTCPDSACKRecv") + get("TcpExtTCPDSACKOfoRecv"), get("TcpRetransSegs")
}

func spurious(j *judge) (all []*Finding) {
	seen := map[uint32]bool{}
	for _, l := range j.lossy() {
		if netns := l.key.Netns; !seen[netns] && j.isSpurious(netns) {
			seen[netns] = true
			d, r := j.dsacks(netns)
			f := j.finding(service(l.key), Warn, float64(d))
			f.Title = fmt.Sprintf("%d of %d retransmitted segments had arrived", d, r)
			f.add("duplicate SACKs", float64(d), "", "TcpExtTCPDSACKRecv").add("segments retransmitted", float64(r), "", "TcpRetransSegs")
			f.sure(Certain, "the peers say that the segments had arrived")
			f.Next = command("tcpretrans -l", l.key)
			all = append(all, f)
		}
	}
	return all
}

func blackholes(j *judge) (all []*Finding) {
	for _, l := range j.lossy() {
		if !l.hole() {
			continue
		}
		f := j.finding(service(l.key), Bad, float64(l.inARow)*1000)
		f.Title = fmt.Sprintf("segments of %d bytes time out %d times in a row, small ones do not", l.largest, l.inARow)
		f.add("timeouts in a row", float64(l.inARow), "", "tcpretrans").add("payload of the segment", float64(l.largest), "bytes", "tcpretrans")
		f.sure(Possible, "a peer that has gone away looks the same")
		for _, s := range j.Services {
			if s.ServiceKey == l.key && s.RX > 0 {
				f.sure(Likely, "the peer sent data meanwhile").add("bytes from the peer", float64(s.RX), "bytes", "flows")
			}
		}
		f.Next = command("tcpretrans -l", l.key)
		all = append(all, f)
	}
	return all
}
