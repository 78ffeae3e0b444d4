// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"seine/internal/row"
	"seine/internal/watch"
	"seine/internal/why"
)

// fewTurns is the least number of turns for a verdict.
const fewTurns = 20

// A service is a line of the screen Services.
type service struct {
	*watch.Service
	seconds float64
	finding *why.Finding
	rname   string // out: of the remote address
}

func (s *service) timed() bool { return !s.Mixed() && s.Turn.Count > 0 }

func (s *service) quantile(q float64) float64 { return s.Turn.Quantile(q) }

// worst is the number that services are sorted by: the worst findings first, then the busiest
// services.
func worst(f *why.Finding, busy float64) uint64 {
	n := uint64(min(busy, 1e12))
	if f != nil {
		n += (uint64(f.Severity) + 1) * 1e15
		n += uint64(1000-min(f.Rank, 1000)) * 1e12
	}
	return n
}

// says puts a finding into a few words.
func says(f *why.Finding, parts *watch.Parts, turns uint64, mixed bool) string {
	switch {
	case f != nil:
		return strings.ToUpper(f.Severity.String()) + " " + f.Class
	case mixed || turns < fewTurns:
		return ""
	}
	if p, share := largest(parts); share >= 0.5 {
		return "mostly " + p.String()
	}
	return ""
}

// hue is the style of the text of says.
func hue(f *why.Finding) style {
	switch {
	case f == nil:
		return dim
	case f.Severity == why.Bad:
		return bad
	case f.Severity == why.Warn:
		return warn
	}
	return normal
}

// largest is the part that takes most of the time of turns.
func largest(parts *watch.Parts) (most watch.Part, share float64) {
	for i := range parts {
		if s := parts.Share(watch.Part(i)); s > share && watch.Part(i).OfTurn() {
			most, share = watch.Part(i), s
		}
	}
	return most, share
}

// where lists the largest parts, in percent.
func where(parts *watch.Parts) string {
	type one struct {
		part  watch.Part
		share float64
	}
	var all []one
	for i := range parts {
		if p := watch.Part(i); p.OfTurn() && parts.Share(p) >= 0.095 {
			all = append(all, one{p, parts.Share(p)})
		}
	}
	slices.SortStableFunc(all, func(a, b one) int {
		switch {
		case a.share > b.share:
			return -1
		case a.share < b.share:
			return 1
		}
		return 0
	})
	var out []string
	for _, o := range all {
		out = append(out, fmt.Sprintf("%s %s", o.part, percent(o.share)))
	}
	return strings.Join(out, ", ")
}

// tenths is a number with one decimal, for a cell whose div is 10.
func tenths(n float64) uint64 { return uint64(max(n, 0)*10 + 0.5) }

// who columns that services, processes, connections and events have in common.
func whoColumns[T any](who func(x *T) *watch.Who) []column[T] {
	return []column[T]{
		{id: "comm", head: "PROCESS", help: "name of the process", kind: row.Text, rank: -1, left: true, up: true,
			cell: func(x *T, c *row.Cell) { setText(c, who(x).Comm) }, text: func(x *T) string { return who(x).Comm }},
		{id: "container", head: "CONTAINER", help: "its container", kind: row.Text, width: 12, grow: 1, rank: 9, left: true, up: true,
			cell: func(x *T, c *row.Cell) { setText(c, who(x).Container) }, text: func(x *T) string { return who(x).Container }},
		{id: "netns", head: "NETNS", help: "network namespace, by inode", kind: row.Uint, rank: -1, up: true,
			cell: func(x *T, c *row.Cell) { setUint(c, uint64(who(x).Netns), who(x).Netns != 0) },
			text: func(x *T) string { return fmt.Sprint(who(x).Netns) }},
	}
}

func setAddr(c *row.Cell, a netip.Addr) {
	if a.IsValid() {
		b := a.As16()
		*c = row.Cell{Kind: row.Addr, S: string(b[:])}
	}
}

// name is the name of a service.
func name(k watch.ServiceKey) string {
	if k.Comm == "" {
		k.Comm = "(unknown)"
	}
	return k.String()
}

var services = sync.OnceValue(func() *table[service] {
	return newTable("services", "worst",
		func(s *service) watch.ServiceKey { return s.ServiceKey },
		func(a, b *service) int { return a.Compare(b.ServiceKey) },
		slices.Concat([]column[service]{
			{id: "service", head: "SERVICE", help: "process, and the port that it serves or the address that it calls", kind: row.Text, width: 24, grow: 3, left: true, up: true, cut: middle,
				cell: func(s *service, c *row.Cell) { c.SetText(name(s.ServiceKey)) }, text: func(s *service) string { return name(s.ServiceKey) }},
			{id: "rname", head: "NAME", help: "out: name of the remote address, as a name server or a TLS client told it; absent if none did", kind: row.Text, width: 16, grow: 1, rank: 7, left: true, up: true,
				cell: func(s *service, c *row.Cell) { setText(c, s.rname) }, text: func(s *service) string { return s.rname }},
			{id: "side", head: "SIDE", help: "in: it serves; out: it calls", kind: row.Text, width: 4, rank: 8, left: true, up: true,
				cell: func(s *service, c *row.Cell) { c.SetText(side(s.Out)) }, text: func(s *service) string { return side(s.Out) }},
			{id: "conns", head: "CONNS", help: "the most connections at once in a second", kind: row.Uint, width: 6, rank: 1,
				cell: func(s *service, c *row.Cell) { c.SetUint(s.Conns) }, text: func(s *service) string { return number(float64(s.Conns)) }},
			{id: "turns_s", head: "TURNS/s", help: "requests with their answers, a second; absent if requests and answers overlap", kind: row.Uint, div: 10, width: 8,
				cell: func(s *service, c *row.Cell) { setUint(c, tenths(float64(s.Turns)/s.seconds), !s.Mixed()) },
				text: func(s *service) string { return absent(!s.Mixed(), number(float64(s.Turns)/s.seconds)) }},
			{id: "p50_us", head: "P50", help: "half of the turns took less", kind: row.Uint, div: 10, width: 8, rank: 2,
				cell: func(s *service, c *row.Cell) { setUint(c, tenths(s.quantile(0.5)), s.timed()) },
				text: func(s *service) string { return absent(s.timed(), took(s.quantile(0.5))) }},
			{id: "p99_us", head: "P99", help: "99 of 100 turns took less", kind: row.Uint, div: 10, width: 8,
				cell: func(s *service, c *row.Cell) { setUint(c, tenths(s.quantile(0.99)), s.timed()) },
				text: func(s *service) string { return absent(s.timed(), took(s.quantile(0.99))) }},
			{id: "verdict", head: "VERDICT", help: "the finding of seine why, or the part that takes more than half of the time of turns", kind: row.Text, width: 16, grow: 1, left: true,
				cell:  func(s *service, c *row.Cell) { setText(c, says(s.finding, &s.Parts, s.Turns, s.Mixed())) },
				text:  func(s *service) string { return says(s.finding, &s.Parts, s.Turns, s.Mixed()) },
				style: func(s *service) style { return hue(s.finding) }},
			{id: "tx_bytes_s", head: "OUT", help: "payload bytes sent, a second", kind: row.Uint, width: 9, rank: 4,
				cell: func(s *service, c *row.Cell) { c.SetUint(uint64(float64(s.TX) / s.seconds)) }, text: func(s *service) string { return rate(float64(s.TX) / s.seconds) }},
			{id: "rx_bytes_s", head: "IN", help: "payload bytes received, a second", kind: row.Uint, width: 9, rank: 4,
				cell: func(s *service, c *row.Cell) { c.SetUint(uint64(float64(s.RX) / s.seconds)) }, text: func(s *service) string { return rate(float64(s.RX) / s.seconds) }},
			{id: "retrans", head: "RESENT", help: "segments retransmitted in the window", kind: row.Uint, width: 6, rank: 5,
				cell: func(s *service, c *row.Cell) { c.SetUint(s.Retrans) }, text: func(s *service) string { return number(float64(s.Retrans)) },
				style: func(s *service) style { return attention(s.Retrans) }},
			{id: "where", head: "WHERE THE TIME OF TURNS GOES", help: "the largest parts of the time of turns", kind: row.Text, width: 28, grow: 2, rank: 3, left: true,
				cell: func(s *service, c *row.Cell) { setText(c, where(&s.Parts)) }, text: func(s *service) string { return where(&s.Parts) }},
			{id: "worst", head: "WORST", help: "the default order: findings first, then the busiest", kind: row.Uint, rank: -1,
				cell: func(s *service, c *row.Cell) { c.SetUint(worst(s.finding, float64(s.Turns)+float64(s.Conns))) },
				text: func(s *service) string { return "" }},
			{id: "lport", head: "LPORT", help: "in: local port", kind: row.Uint, rank: -1, up: true,
				cell: func(s *service, c *row.Cell) { setUint(c, uint64(s.Lport), s.Lport != 0) }, text: func(s *service) string { return fmt.Sprint(s.Lport) }},
			{id: "raddr", head: "RADDR", help: "out: remote address", kind: row.Addr, rank: -1, up: true,
				cell: func(s *service, c *row.Cell) { setAddr(c, s.Raddr) }, text: func(s *service) string { return s.Raddr.String() }},
			{id: "rport", head: "RPORT", help: "out: remote port", kind: row.Uint, rank: -1, up: true,
				cell: func(s *service, c *row.Cell) { setUint(c, uint64(s.Rport), s.Rport != 0) }, text: func(s *service) string { return fmt.Sprint(s.Rport) }},
			{id: "turns", head: "TURNS", help: "turns in the window", kind: row.Uint, rank: -1,
				cell: func(s *service, c *row.Cell) { setUint(c, s.Turns, !s.Mixed()) }, text: func(s *service) string { return number(float64(s.Turns)) }},
			{id: "turn_us", head: "TURN", help: "time of turns, a histogram", kind: row.Object, rank: -1,
				cell: func(s *service, c *row.Cell) {
					if s.timed() {
						*c = row.Cell{Kind: row.Object, Ref: s.Turn.Full()}
					}
				}, text: func(s *service) string { return "" }},
		}, whoColumns(func(s *service) *watch.Who { return &s.Who })))
})

func side(out bool) string {
	if out {
		return "out"
	}
	return "in"
}

// attention is the style of counts that should be 0.
func attention(n uint64) style {
	if n > 0 {
		return warn
	}
	return dim
}

// services calls do for each line of the screen.
func (s *Snapshot) services(do func(*service)) {
	for _, v := range s.View.Services {
		one := &service{Service: v, seconds: s.seconds(), finding: s.verdict(v.ServiceKey)}
		if v.Out {
			one.rname = s.View.Name(v.Who, v.Raddr)
		}
		do(one)
	}
}
