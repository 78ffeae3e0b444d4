// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"

	"seine/internal/watch"
)

// fewTurns is the least number of turns that can be judged.
const fewTurns = 20

// verdict is the least share of the time of turns at which a part is to blame.
const verdict = 0.5

const (
	turnsAsked = "at least 20 turns, a p99 of at least --slow (100 ms), and half of the time of turns in this part; with --since a tenth of --slow is enough if it is three times the p99 of the hour before"
	turnsBad   = "warn; bad from five times --slow on; info where turns may wait on purpose, and only for the given target"
	turnsSure  = "certain if 80 % of the time is in this part, else likely"
)

// turnRules are about where the time of turns goes.
var turnRules = []Rule{
	{
		Class: "app-slow", Short: "the application is slow to answer", Looks: "part app of a service's turns",
		Threshold: turnsAsked, Severity: turnsBad, Sure: turnsSure, Needs: []string{"flows"},
		Advice: "look into the application, or at the services that it calls; the network is not the reason",
		find:   func(j *judge) []*Finding { return j.turns(watch.App, false) },
	},
	{
		Class: "reads-late", Short: "the application reads received data late", Looks: "part unread of a service's turns",
		Threshold: turnsAsked, Severity: turnsBad, Sure: turnsSure, Needs: []string{"flows"},
		Advice: "the process has too few threads, or too little processor time, for the data that it receives",
		find: func(j *judge) []*Finding {
			return append(j.turns(watch.Unread, false), j.turns(watch.Unread, true)...)
		},
	},
	{
		Class: "peer-slow", Short: "the peer is slow to answer", Looks: "part peer of a client's turns",
		Threshold: turnsAsked, Severity: turnsBad, Sure: turnsSure, Needs: []string{"flows"},
		Advice: "look at the peer, not at this process or the network",
		find:   func(j *judge) []*Finding { return j.turns(watch.Peer, true) },
	},
	{
		Class: "peer-window", Short: "the peer's receive window is closed", Looks: "part window of a service's turns, and window probes",
		Threshold: turnsAsked + "; part network counts if window takes at least half as long, because a sender that paces waits for its pace and for the window at once; or a second of it in a stream, and three window probes in its namespace",
		Severity:  turnsBad, Sure: turnsSure, Needs: []string{"flows"},
		Advice: "the peer's application does not read, or its receive buffer is too small for the path",
		find: func(j *judge) []*Finding {
			return append(append(j.turns(watch.Window, false), j.turns(watch.Window, true)...), j.stalls()...)
		},
	},
	{
		Class: "send-buffer", Short: "the send buffer of this side is too small", Looks: "part buffer of a service's turns; a closer look (flows --exact) measures it for services that spend their time in the network and send 16 KB or more in a turn",
		Threshold: turnsAsked + ", since the closer look began", Severity: turnsBad, Sure: turnsSure, Needs: []string{"flows"},
		Advice: "raise net.ipv4.tcp_wmem, and do not set SO_SNDBUF in the application",
		find: func(j *judge) []*Finding {
			return append(j.turns(watch.Buffer, false), j.turns(watch.Buffer, true)...)
		},
	},
}

// turns finds services whose turns are slow because of one part.
func (j *judge) turns(part watch.Part, out bool) (all []*Finding) {
	for _, s := range j.Services {
		if s.Out != out || s.Mixed() {
			continue
		}
		if f := j.slow(s, part); f != nil {
			all = append(all, f)
		}
	}
	return all
}

// times are the times of turns that a part is judged by.
func times(s *watch.Service, part watch.Part) *watch.Hist {
	if (part == watch.Peer || part == watch.App) && s.First.Count > 0 && s.First.Count >= s.Turn.Count/2 {
		return &s.First // the rest of a download, or later events, do not count
	}
	return &s.Turn
}

// before is the p99 of a service in the time before, in milliseconds. It is 0 if that is not
// known.
func (j *judge) before(k watch.ServiceKey, part watch.Part) float64 {
	if j.Past == nil {
		return 0
	}
	i := slices.IndexFunc(j.Past.Services, func(s *watch.Service) bool { return s.ServiceKey == k })
	if i < 0 || j.Past.Services[i].Mixed() {
		return 0
	}
	h := times(j.Past.Services[i], part)
	if h.Count < fewTurns {
		return 0
	}
	return h.Quantile(0.99) / 1000
}

// blame is the share of the time of turns that a part is judged by. TCP counts the time until
// the pace (BBR's, fq's) lets it send as network, even if the peer's window is closed then.
// Hence network is the window's where both occur.
func blame(p *watch.Parts, part watch.Part) float64 {
	window, network := p.Share(watch.Window), p.Share(watch.Network)
	windowed := window > 0 && window >= network/2
	switch {
	case windowed && part == watch.Window:
		return window + network
	case windowed && part == watch.Network:
		return 0
	}
	return p.Share(part)
}

func (j *judge) slow(s *watch.Service, part watch.Part) *Finding {
	h := times(s, part)
	p99, share, was := h.Quantile(0.99)/1000, s.Parts.Share(part), j.before(s.ServiceKey, part)
	slower := was > 0 && p99 >= 3*was && p99 >= j.Slow/10
	if h.Count < fewTurns || p99 < j.Slow && !slower || blame(&s.Parts, part) < verdict {
		return nil
	}
	f := j.finding(service(s.ServiceKey), worse(p99 >= 5*j.Slow), p99)
	f.Title = fmt.Sprintf("p99 of a turn %.0f ms, %.0f %% of it %s", p99, share*100, inWords[part])
	if was > 0 {
		f.Title += fmt.Sprintf("; it was %.1f ms in the hour before", was)
		f.Evidence = append(f.Evidence, Evidence{What: "p99 of a turn before", Value: was, Unit: "ms", From: "flows", Window: j.Past.Seconds()})
	}
	f.add("p99 of a turn", p99, "ms", "flows").add("turns", float64(h.Count), "", "flows").add("share of part "+part.String(), share*100, "%", "flows")
	for p, ms := range s.Parts {
		if o := watch.Part(p); o != part && s.Parts.Share(o) >= 0.1 && s.Parts.Turns() > 0 && inWords[o] != "" {
			f.add("share of part "+o.String(), ms/s.Parts.Turns()*100, "%", "flows")
		}
	}
	switch {
	case share >= 0.8:
		f.sure(Certain, "nearly all of the time is in this part")
	case part == watch.Window && s.Parts.Share(watch.Network) >= 0.1:
		f.sure(Likely, "a sender that paces waits for its pace and for the window at once")
	default:
		f.sure(Likely, "most of the time is in this part")
	}
	if (part == watch.App || part == watch.Peer) && onPurpose(h) {
		f.Severity, f.patient = Info, true
		f.sure(Possible, "an answer may wait for an event on purpose, as in a long poll")
	}
	f.Next = flowsCommand(s.ServiceKey)
	return f
}

// onPurpose reports whether answers may wait for an event: half of them take a second or more,
// or nearly all take half a second, which is how long message brokers let a fetch wait.
func onPurpose(h *watch.Hist) bool {
	return h.Quantile(0.5) >= 1_000_000 || h.Quantile(0.1) >= 450_000 && h.Quantile(0.9) <= 600_000
}

// inWords says where the time of a part went.
var inWords = map[watch.Part]string{
	watch.App: "in the application", watch.Unread: "before the application read", watch.Peer: "at the peer", watch.Receiving: "between pieces of a message",
	watch.Window: "at the peer's closed window", watch.Buffer: "at the full send buffer", watch.Loss: "in lost segments", watch.Network: "in the network",
}

// stalls finds streams that a closed window stops.
func (j *judge) stalls() (all []*Finding) {
	for _, s := range j.Services {
		probes := j.Counters[watch.CounterKey{Netns: s.Netns, Name: "TcpExtTCPWinProbe"}]
		if ms := s.Parts[watch.Window]; ms < 1000 || s.Parts.Share(watch.Window) < verdict || probes < 3 {
			continue
		}
		f := j.finding(service(s.ServiceKey), Warn, s.Parts[watch.Window])
		f.Title = fmt.Sprintf("%.1f s of sending at the peer's closed window", s.Parts[watch.Window]/1000)
		f.add("time at a closed window", s.Parts[watch.Window], "ms", "flows").add("window probes in the namespace", float64(probes), "", "TcpExtTCPWinProbe")
		f.sure(Certain, "the peer's window was probed")
		f.Next = flowsCommand(s.ServiceKey)
		all = append(all, f)
	}
	return all
}

// flowsCommand shows the connections of a service.
func flowsCommand(k watch.ServiceKey) string { return command("flows --view connections", k) }
