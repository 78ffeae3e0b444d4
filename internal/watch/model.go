// SPDX-License-Identifier: Apache-2.0

// Package watch is a model of the machine's network now and in the last minutes:
// services, connections, events, and the kernel's counters.
//
//	rows of tools ─┐
//	recordings ────┼► Model ─► View: why, top, the page, metrics
//	Sampler ───────┘
//
// Rows, live or recorded, and counters feed it. It reads nothing itself and prints
// nothing. It is bounded by count and age, and counts what it had no room for. The same
// rows make the same model, in whatever order tools deliver them.
package watch

import (
	"net/netip"
	"sync"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// Options are the bounds of a model. The zero value works.
type Options struct {
	Keep     time.Duration // how far back it goes; 0: 300 s
	Least    time.Duration // seconds that are never evicted for room; 0: 30 s
	Services int           // 0: 10,000
	Tallies  int           // kinds of events, by where they happened; 0: 50,000
	Conns    int           // 0: 100,000
	Quiet    time.Duration // how long a connection without a row is kept; 0: 1 h
	Names    int           // of addresses; 0: 50,000
	Cells    int           // of services, and of tallies: one for each second with an event; 0: 200,000
}

func (o Options) filled() Options {
	set := func(n *int, usual int) {
		if *n == 0 {
			*n = usual
		}
	}
	if o.Keep == 0 {
		o.Keep = 300 * time.Second
	}
	if o.Least == 0 {
		o.Least = 30 * time.Second
	}
	if o.Quiet == 0 {
		o.Quiet = time.Hour
	}
	set(&o.Services, 10_000)
	set(&o.Tallies, 50_000)
	set(&o.Conns, 100_000)
	set(&o.Cells, 200_000)
	set(&o.Names, 50_000)
	return o
}

// A Model takes rows and counters, and shows views of them. All methods may be called
// by any goroutine.
type Model struct {
	mu       sync.Mutex
	services *series[ServiceKey, serviceCell]
	tallies  *series[TallyKey, tallyCell]
	counters *series[CounterKey, int64]
	gauges   *series[CounterKey, float64]
	conns    conns
	names    addrNames
	followed followed
	words    words
	owners   map[Who]*Who
	sources  map[string]*Source
	addrs    Addrs // of this machine
	first    int64 // second of the first row
	last     int64 // of the newest
	counted  func(k CounterKey, by int64)
}

// A Source is what has fed the model: a tool by its name, or "counters".
type Source struct {
	Name     string
	Rows     uint64
	Lost     uint64 // events that did not become rows
	Nameless uint64 // sockets that it met and whose process is not known
	Why      string // it could not be asked; empty: it was
}

// New makes an empty model.
func New(o Options) *Model {
	o = o.filled()
	return &Model{
		services: newSeries[ServiceKey, serviceCell](&o, o.Services),
		tallies:  newSeries[TallyKey, tallyCell](&o, o.Tallies),
		counters: newSeries[CounterKey, int64](&o, o.Tallies),
		gauges:   newSeries[CounterKey, float64](&o, o.Tallies),
		conns:    conns{most: o.Conns, quiet: int64(o.Quiet.Seconds())},
		names:    addrNames{most: o.Names, keep: int64(o.Keep.Seconds())},
		followed: followed{keep: int64(o.Keep.Seconds())},
		sources:  map[string]*Source{},
		addrs:    Addrs{},
	}
}

// Counters is the name of the Source that the kernel's own counters are.
const Counters = "counters"

// Asked says that a source will feed the model, or why it will not. What was asked and
// sent nothing saw nothing; what was not asked is unknown.
func (m *Model) Asked(source, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source(source).Why = why
}

// LeftOut are the sources that will not feed the model, and why.
func (m *Model) LeftOut() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for name, s := range m.sources {
		if s.Why != "" {
			out[name] = s.Why
		}
	}
	return out
}

// Dropped says that a source has rows which did not reach the model.
func (m *Model) Dropped(source string, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source(source).Lost += n
}

// Lost says what a source has lost.
func (m *Model) Lost(source string, losses []row.Loss) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.source(source)
	for _, l := range losses {
		if l.Kind == row.OwnerUnknown {
			s.Nameless += l.N
		} else {
			s.Lost += l.N
		}
	}
	return nil
}

// Addrs are the addresses of this machine, each with the network namespaces that have it.
type Addrs map[netip.Addr]map[uint32]bool

// In says whether what a network namespace asks at an address may be another one of this machine.
// Loopback is the own one.
func (a Addrs) In(from uint32, addr netip.Addr, to uint32) bool {
	if addr.IsLoopback() {
		return from == to
	}
	return a[addr][to]
}

// Local says which addresses a network namespace of this machine has.
func (m *Model) Local(netns uint32, addrs ...netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.local(netns, addrs...)
}

func (m *Model) local(netns uint32, addrs ...netip.Addr) {
	for _, a := range addrs {
		if m.addrs[a] == nil {
			m.addrs[a] = map[uint32]bool{}
		}
		m.addrs[a][netns] = true
	}
}

func (m *Model) source(name string) *Source {
	s := m.sources[name]
	if s == nil {
		s = &Source{Name: name}
		m.sources[name] = s
	}
	return s
}

// Row takes one row. Rows of tools, and of views, that the model has no use for are
// counted and left.
func (m *Model) Row(r *row.Row) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.source(r.Schema.Tool).Rows++
	c := r.Get("time")
	take := takers[r.Schema.Tool+"/"+r.Schema.View]
	if take == nil || c == nil || c.Kind != row.Time {
		return nil
	}
	at := int64(c.N) / int64(time.Second)
	m.saw(at)
	take(m, at, reader{r, &m.words})
	return nil
}

// End takes the losses of a batch. Without losses it does not say whose batch it is.
func (m *Model) End(e row.End) error {
	if len(e.Losses) == 0 {
		return nil
	}
	return m.Lost(e.Tool, e.Losses)
}

func (m *Model) saw(at int64) {
	if m.first == 0 || at < m.first {
		m.first = at
	}
	m.last = max(m.last, at)
	m.conns.expire(m.last)
}

// reader reads cells by the ids of their columns. What is absent is zero.
type reader struct {
	*row.Row
	words *words
}

// value is a number in the unit that the id names.
func (r reader) value(id string) float64 {
	i := r.Schema.Index(id)
	if i < 0 || r.Cells[i].Kind == row.Null || r.Cells[i].Kind == row.Text {
		return 0
	}
	return r.Schema.Columns[i].Value(&r.Cells[i])
}

// has says whether there is a value.
func (r reader) has(id string) bool {
	c := r.Get(id)
	return c != nil && c.Kind != row.Null
}

func (r reader) count(id string) uint64 {
	c := r.Get(id)
	if c == nil || c.Kind == row.Text {
		return 0
	}
	return c.N
}

func (r reader) port(id string) uint16 { return uint16(r.count(id)) }

func (r reader) text(id string) string {
	c := r.Get(id)
	if c == nil || c.Kind != row.Text {
		return ""
	}
	return r.words.get(c.S)
}

func (r reader) addr(id string) netip.Addr {
	c := r.Get(id)
	if c == nil || c.Kind != row.Addr {
		return netip.Addr{}
	}
	return c.IP()
}

func (r reader) hist(id string) *kern.Hist {
	c := r.Get(id)
	if c == nil {
		return nil
	}
	h, _ := c.Ref.(*kern.Hist)
	return h
}

func (r reader) who() Who {
	return Who{Comm: r.text("comm"), Container: r.text("container"), Netns: uint32(r.count("netns"))}
}
