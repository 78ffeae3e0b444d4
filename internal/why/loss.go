// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"

	"seine/internal/watch"
)

const (
	lossAsked  = "ten retransmissions, one in a thousand of the bytes sent, most of them so; or three that take a tenth of the time of turns"
	lossBad    = "warn; bad where they take half of the time of turns"
	lossLooks  = "retransmissions of a service by cause, and part loss of its turns"
	lossAdvice = "find where segments are lost: drops of this machine are findings of their own, else it is the path or the peer"
)

// lossRules are about segments that are sent again.
var lossRules = []Rule{
	{
		Class: "loss-fast", Short: "segments are lost and repaired at once", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "likely: the peer's acknowledgements tell of a gap, which reordering can make too", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("fast", Likely, "reordering looks the same at first") },
	},
	{
		Class: "loss-tail", Short: "the last segments of messages are lost", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "likely: a probe is sent when an acknowledgement is late, too", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("tlp", Likely, "a late acknowledgement looks the same") },
	},
	{
		Class: "loss-timeout", Short: "segments are lost until a timeout", Looks: lossLooks, Threshold: lossAsked, Severity: lossBad,
		Sure: "certain: nothing came back for the whole timeout", Needs: []string{"tcpretrans"}, Advice: lossAdvice,
		find: func(j *judge) []*Finding { return j.losses("rto", Certain, "nothing came back for a whole timeout") },
	},
	{
		Class: "loss-spurious", Short: "segments are sent again that had arrived", Looks: "duplicate SACKs that came, against retransmissions of the network namespace",
		Threshold: "ten of them, and half as many as retransmissions", Severity: "warn", Sure: "certain: the peers say that they had the segments",
		Needs: []string{"tcpretrans", watch.Counters}, Advice: "the path's delay varies, or packets overtake each other: nothing is lost; look at bonding, multipath and Wi-Fi",
		find: spurious,
	},
	{
		Class: "mtu-blackhole", Short: "large segments do not get through", Looks: "retransmissions after timeouts, by the size of segments",
		Threshold: "a segment of 1,221 bytes or more times out three times in a row, and no small one does", Severity: "bad",
		Sure: "likely if the peer was heard meanwhile, else possible", Needs: []string{"tcpretrans"},
		Advice: "let ICMP 'fragmentation needed' through, or lower the MTU or the MSS (net.ipv4.tcp_mtu_probing=1 helps)",
		find:   blackholes,
	},
}

// lossy is the retransmissions of a service.
type lossy struct {
	key       watch.ServiceKey
	causes    map[string]uint64
	all, big  uint64
	bytes     uint64
	inARow    uint64 // timeouts
	largest   uint64
	smallOnes uint64 // timeouts of segments that fit everywhere
}

// lossy adds up retransmissions of connections that are established.
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

// handshake says whether a state is one before there is a connection.
func handshake(state string) bool {
	return state == "SYN_SENT" || state == "SYN_RECV" || state == "NEW_SYN_RECV"
}

// cost is how long a loss of each cause holds a connection up, against the others.
var cost = map[string]uint64{"fast": 1, "tlp": 2, "rto": 5}

// cause is the one that costs most.
func (l *lossy) cause() (most string) {
	for _, c := range []string{"rto", "tlp", "fast"} {
		if most == "" || l.causes[c]*cost[c] > l.causes[most]*cost[most] {
			most = c
		}
	}
	return most
}

// hole says whether large segments alone are lost, and again and again.
func (l *lossy) hole() bool { return l.inARow >= 3 && l.big > 0 && l.smallOnes == 0 }

func (j *judge) losses(cause string, sure Confidence, reason string) (all []*Finding) {
	for _, l := range j.lossy() {
		share, sent := 0.0, uint64(0)
		for _, s := range j.Services {
			if s.ServiceKey == l.key {
				share, sent = s.Parts.Share(watch.Loss), s.TX
			}
		}
		if share < 0.1 && l.bytes*1000 < sent {
			continue // so many a fast sender loses to find out how fast it may be
		}
		if l.cause() != cause || l.hole() || l.all < 10 && (l.all < 3 || share < 0.1) || j.isSpurious(l.key.Netns) {
			continue
		}
		f := j.finding(service(l.key), worse(share >= 0.5), float64(l.all))
		f.Title = fmt.Sprintf("%d packets sent again, %.0f %% of the time of turns", l.all, share*100)
		f.add("packets sent again", float64(l.all), "", "tcpretrans")
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

// isSpurious says whether most of what a namespace sent again had arrived.
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
			f.Title = fmt.Sprintf("%d of %d segments sent again had arrived", d, r)
			f.add("duplicate SACKs", float64(d), "", "TcpExtTCPDSACKRecv").add("segments sent again", float64(r), "", "TcpRetransSegs")
			f.sure(Certain, "the peers say that they had the segments")
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
				f.sure(Likely, "the peer was heard meanwhile").add("bytes from the peer", float64(s.RX), "bytes", "flows")
			}
		}
		f.Next = command("tcpretrans -l", l.key)
		all = append(all, f)
	}
	return all
}
