// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A View is the content of a model in a window of time. It does not change with the
// model.
type View struct {
	From, To time.Time // the part of the window that has data
	Services []*Service
	Tallies  []*Tally
	Counters map[CounterKey]int64                  // by how much they grew
	Gauges   map[CounterKey]Gauge                  // of the window
	Sources  map[string]Source                     // what has fed the model
	Local    Addrs                                 // of this machine
	Conns    func(do func(c *Conn))                // the connections, the most recently active first
	Name     func(who Who, addr netip.Addr) string // as Model.Name
	Closer   float64                               // seconds of the closer look that some tallies are of; 0: there was none
	Bounds   Bounds
}

// A Gauge is the values that something had.
type Gauge struct{ Last, Most float64 }

// Bounds counts what a model had no room for.
type Bounds struct {
	Evicted uint64 // seconds of services and of tallies that were evicted early
	Refused uint64 // rows
	Late    uint64 // rows that were older than the oldest kept second
	Conns   uint64 // connections
}

// Seconds is how long the window is.
func (v *View) Seconds() float64 { return v.To.Sub(v.From).Seconds() }

// Window is the latest part of the model.
func (m *Model) Window(last time.Duration) *View {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.last - int64(last.Seconds()) + 1
	return m.view(max(from, m.first), m.last)
}

func (m *Model) view(from, to int64) *View {
	v := &View{
		From: time.Unix(from, 0), To: time.Unix(to+1, 0),
		Counters: map[CounterKey]int64{}, Gauges: map[CounterKey]Gauge{}, Sources: map[string]Source{}, Local: Addrs{},
		Bounds: Bounds{
			Evicted: m.services.evicted + m.tallies.evicted, Refused: m.services.refused + m.tallies.refused,
			Late: m.services.late + m.tallies.late, Conns: m.conns.evicted,
		},
	}
	for a, in := range m.addrs {
		v.Local[a] = maps.Clone(in)
	}
	for name, s := range m.sources {
		v.Sources[name] = *s
	}
	services := map[ServiceKey]*Service{}
	m.services.each(from, to, func(_ int64, k ServiceKey, c *serviceCell) {
		s := services[k]
		if s == nil {
			s = &Service{ServiceKey: k}
			services[k] = s
		}
		s.add(c)
	})
	v.Services = slices.SortedFunc(maps.Values(services), func(a, b *Service) int { return a.compare(b.ServiceKey) })
	v.Tallies = m.tallied(from, to)
	m.counters.each(from, to, func(_ int64, k CounterKey, n *int64) { v.Counters[k] += *n })
	m.gauges.each(from, to, func(_ int64, k CounterKey, n *float64) {
		g := v.Gauges[k]
		v.Gauges[k] = Gauge{Last: *n, Most: max(g.Most, *n)}
	})
	v.Conns, v.Name = m.eachConn, m.Name
	return v
}

// tallied adds up tallies. It drops ephemeral ports: a service is known by the port that it
// serves or the address that it calls.
func (m *Model) tallied(from, to int64) []*Tally {
	all := map[TallyKey]*Tally{}
	m.tallies.each(from, to, func(at int64, k TallyKey, c *tallyCell) {
		out := true
		if k.Lport != 0 {
			out = m.asks(k)
			if out {
				k.Lport = 0
			} else {
				k.Raddr, k.Rport = netip.Addr{}, 0
			}
		}
		t := all[k]
		if t == nil {
			t = &Tally{TallyKey: k, Out: out}
			all[k] = t
		}
		t.add(c)
		if at != t.Last {
			t.Seconds++
		}
		t.Last = at
	})
	return slices.SortedFunc(maps.Values(all), func(a, b *Tally) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.What, b.What), strings.Compare(a.Note, b.Note),
			a.Service().compare(b.Service()), strings.Compare(a.Dev, b.Dev), cmp.Compare(a.Lport, b.Lport), a.Raddr.Compare(b.Raddr), cmp.Compare(a.Rport, b.Rport))
	})
}

// asks reports whether this side of a connection is the client. A known service decides,
// else the smaller port is the server's. Rows of services come a second late, so all
// services of the model are searched.
func (m *Model) asks(k TallyKey) bool {
	if m.services.has(ServiceKey{Who: k.Who, Lport: k.Lport}) {
		return false
	}
	if m.services.has(ServiceKey{Who: k.Who, Out: true, Raddr: k.Raddr, Rport: k.Rport}) {
		return true
	}
	return k.Rport != 0 && k.Rport < k.Lport
}

func (k ServiceKey) compare(o ServiceKey) int {
	side := 0
	if k.Out != o.Out {
		if side = -1; k.Out {
			side = 1
		}
	}
	return cmp.Or(strings.Compare(k.Comm, o.Comm), side, cmp.Compare(k.Lport, o.Lport), k.Raddr.Compare(o.Raddr), cmp.Compare(k.Rport, o.Rport),
		strings.Compare(k.Container, o.Container), cmp.Compare(k.Netns, o.Netns))
}

// eachConn calls do for each connection, which is valid during the call.
func (m *Model) eachConn(do func(c *Conn)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var shown Conn // one for all: there may be 100,000
	for c := m.conns.newest; c != nil; c = c.older {
		shown = c.show()
		do(&shown)
	}
}

// Tallied are the tallies of a kind.
func (v *View) Tallied(kind Kind) (out []*Tally) {
	for _, t := range v.Tallies {
		if t.Kind == kind {
			out = append(out, t)
		}
	}
	return out
}

// Asked reports whether a source feeds the model.
func (v *View) Asked(source string) bool {
	s, ok := v.Sources[source]
	return ok && s.Why == ""
}

// Grown is by how much a counter grew in all network namespaces.
func (v *View) Grown(name string) (n int64) {
	for k, by := range v.Counters {
		if k.Name == name {
			n += by
		}
	}
	return n
}

// Netns are the network namespaces in which a counter grew, ascending.
func (v *View) Netns(name string) (out []uint32) {
	for k, by := range v.Counters {
		if k.Name == name && by > 0 {
			out = append(out, k.Netns)
		}
	}
	slices.Sort(out)
	return out
}
