// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"net/netip"
)

// Who identifies a process in a model: by its container, else its network namespace, and by
// its name.
type Who struct {
	Comm      string
	Container string
	Netns     uint32
}

// ServiceKey is a process with one port that it serves, or one address that it calls.
type ServiceKey struct {
	Who
	Out   bool
	Lport uint16     // in
	Raddr netip.Addr // out
	Rport uint16     // out
}

// String is the name of the service: "nginx :443", "curl → 10.0.0.5:5432".
func (k ServiceKey) String() string {
	if k.Out {
		return k.Comm + " → " + Endpoint(k.Raddr, k.Rport)
	}
	return fmt.Sprintf("%s :%d", k.Comm, k.Lport)
}

// Endpoint is an address and a port as people write them. Either may be missing.
func Endpoint(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return fmt.Sprintf(":%d", port)
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// Part is a part of a connection's time, as in flows.
type Part int

// The parts, in the order of flows.
const (
	Connect Part = iota
	Accept
	App
	Unread
	Peer
	Receiving
	Window
	Buffer
	Loss
	Network
	Idle
	Closing
	Unknown
	numParts
)

var partNames = [numParts]string{"connect", "accept", "app", "unread", "peer", "receiving", "window", "buffer", "loss", "network", "idle", "closing", "unknown"}

func (p Part) String() string { return partNames[p] }

// OfTurn reports whether a part belongs to turns. Time before, between and after turns does
// not.
func (p Part) OfTurn() bool {
	switch p {
	case Connect, Accept, Idle, Closing, Unknown:
		return false
	}
	return true
}

// Parts is milliseconds of each part.
type Parts [numParts]float64

// Turns is the time of turns.
func (p *Parts) Turns() (ms float64) {
	for i, v := range p {
		if Part(i).OfTurn() {
			ms += v
		}
	}
	return ms
}

// Share is the share of a part in the time of turns: 0 to 1.
func (p *Parts) Share(part Part) float64 {
	if all := p.Turns(); all > 0 {
		return p[part] / all
	}
	return 0
}

// serviceCell is a second of a service.
type serviceCell struct {
	conns, turns, tx, rx, retrans uint64
	overlaps                      uint64
	turn, first                   Hist
	parts                         Parts
}

// A Service sums up a service in a window.
type Service struct {
	ServiceKey
	Conns    uint64 // the most at once
	Turns    uint64
	Overlaps uint64 // times that requests and answers overlapped: there are no turns then
	TX, RX   uint64 // bytes
	Retrans  uint64
	Turn     Hist // microseconds
	First    Hist // out: to the first byte of the answer
	Parts    Parts
	Seconds  int // seconds with an event
}

// Mixed reports whether requests and answers overlap, so that there are no turns to judge.
func (s *Service) Mixed() bool { return s.Overlaps*10 > s.Turns }

func takeService(m *Model, at int64, r reader) {
	k := ServiceKey{Who: r.who(), Out: r.text("side") == "out"}
	if k.Out {
		k.Raddr, k.Rport = r.addr("raddr"), r.port("rport")
	} else {
		k.Lport = r.port("lport")
	}
	c := m.services.cell(at, k)
	if c == nil {
		return
	}
	c.conns += r.count("conns")
	c.turns += r.count("turns")
	c.overlaps += r.count("overlaps")
	c.tx += r.count("tx_bytes")
	c.rx += r.count("rx_bytes")
	c.retrans += r.count("retrans")
	c.turn.merge(r.hist("turn_us"))
	c.first.merge(r.hist("first_us"))
	for i := range c.parts {
		c.parts[i] += r.value(partNames[i] + "_ms")
	}
}

// add adds a second of the service to the window.
func (s *Service) add(c *serviceCell) {
	s.Conns = max(s.Conns, c.conns)
	s.Turns += c.turns
	s.Overlaps += c.overlaps
	s.TX += c.tx
	s.RX += c.rx
	s.Retrans += c.retrans
	s.Turn.join(&c.turn)
	s.First.join(&c.first)
	for i, v := range c.parts {
		s.Parts[i] += v
	}
	s.Seconds++
}
