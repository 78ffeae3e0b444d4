// SPDX-License-Identifier: Apache-2.0

// Package names knows the names of addresses, from the DNS answers that programs received and
// from the server names in their TLS handshakes. It never looks an address up.
package names

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/ringbuf"
	"seine/internal/row"
)

// A Source is programs whose events tell names.
type Source struct {
	Object string // the BPF object: the name of its tool
	Points []probe.Point
	// Forget are maps that are made as LRU maps here: only the tool itself deletes entries
	// whose end never comes.
	Forget []string
	// Learn takes an event apart.
	Learn func(raw []byte, tell func(Name))
}

// A Name is what an event tells.
type Name struct {
	Netns, PID uint32 // whose it is; 0: not known
	Sock       uint64 // the connection that it is of; 0: of any to this address
	Addr       netip.Addr
	Name       string
}

// place is where a name holds: an address, or a connection.
type place struct {
	netns, pid uint32
	sock       uint64
	addr       netip.Addr
}

// Table is the names that have been learned. It is safe for use by several goroutines.
type Table struct {
	mu      sync.Mutex
	sources []*source
	// When there are many names, those that were not told again for long are forgotten.
	young, old map[place]string
	lost       uint64        // events that found no room, of sources that are closed
	done       chan struct{} // closed when the table is
	reader     sync.WaitGroup
}

type source struct {
	Source
	set  *probe.Set
	ring *ringbuf.Reader
}

// many is how many names there may be before the older ones are forgotten.
const many = 1 << 16

// readEvery is how often events are read if no row asks for a name: else the ring would fill up.
const readEvery = 250 * time.Millisecond

// Open attaches the programs. The table has to be closed.
func Open(sources ...Source) (*Table, error) {
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	t := &Table{young: map[place]string{}, done: make(chan struct{})}
	for _, s := range sources {
		opened, err := s.open(k)
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("names: %s: %w", s.Object, err)
		}
		t.sources = append(t.sources, opened)
	}
	t.reader.Go(t.readOn)
	return t, nil
}

// readOn reads until the table is closed.
func (t *Table) readOn() {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.done:
			return
		case <-tick.C:
			t.mu.Lock()
			t.read()
			t.mu.Unlock()
		}
	}
}

func (s Source) open(k *probe.Kernel) (*source, error) {
	spec, err := object.Spec(s.Object)
	if err != nil {
		return nil, err
	}
	for _, name := range s.Forget {
		spec.Maps[name].Type = ebpf.LRUHash
	}
	// Nobody waits for an event: names are read when a row asks for one.
	if err := spec.Variables["wake_bytes"].Set(uint64(math.MaxUint64)); err != nil {
		return nil, err
	}
	set, err := probe.Attach(k, spec, s.Points, probe.Options{})
	if err != nil {
		return nil, err
	}
	ring, err := ringbuf.NewReader(set.Maps["events"])
	if err != nil {
		set.Close()
		return nil, err
	}
	return &source{Source: s, set: set, ring: ring}, nil
}

// Lost is how many events that tell names found no room in the ring.
func (t *Table) Lost() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.lost
	for _, s := range t.sources {
		n += s.lost()
	}
	return n
}

// lost is the first of the kernel side's counts of losses: LOSS_RING.
func (s *source) lost() (n uint64) {
	if v := s.set.Vars["losses"]; v != nil {
		counts := make([]uint64, v.Size()/8)
		if v.Get(counts) == nil {
			n = counts[0]
		}
	}
	return n
}

// Close detaches the programs. What was learned stays.
func (t *Table) Close() {
	close(t.done)
	t.reader.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sources {
		t.lost += s.lost()
		s.ring.Close()
		s.set.Close()
	}
	t.sources = nil
}

// Of is the name of an address: the name that the process itself resolved, or else one that a
// process in its network namespace resolved, or else any. For a connection with TLS it is the
// server name of the handshake. It is empty if no name is known.
func (t *Table) Of(n Name) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
	n.Addr = n.Addr.Unmap()
	for _, p := range n.places() {
		if name, ok := t.young[p]; ok {
			return name
		}
		if name, ok := t.old[p]; ok {
			return name
		}
	}
	return ""
}

// places are where a name holds, the most specific first.
func (n *Name) places() []place {
	out := []place{{n.Netns, n.PID, 0, n.Addr}, {n.Netns, 0, 0, n.Addr}, {0, 0, 0, n.Addr}}
	if n.Sock != 0 {
		out = append([]place{{sock: n.Sock}}, out...)
	}
	return out
}

// read learns what has been told: all of it came before the row that asks.
func (t *Table) read() {
	var rec ringbuf.Record
	for _, s := range t.sources {
		for s.ring.AvailableBytes() > 0 {
			s.ring.SetDeadline(time.Now())
			if s.ring.ReadInto(&rec) != nil { // the deadline has passed: the next record is not complete
				break
			}
			s.Learn(rec.RawSample, t.learn)
		}
	}
}

func (t *Table) learn(n Name) {
	if n.Name == "" {
		return
	}
	if len(t.young) >= many {
		t.young, t.old = map[place]string{}, t.young
	}
	n.Addr = n.Addr.Unmap()
	for _, p := range n.places() {
		t.young[p] = n.Name
	}
}

// Column is the id of the column with names of remote addresses.
const Column = "rname"

// Can reports whether a schema has remote addresses.
func Can(s *row.Schema) bool { return remote(s) != "" && s.Index(Column) < 0 }

// remote is the column with the remote address; empty: there is none.
func remote(s *row.Schema) string {
	for _, id := range []string{"raddr", "daddr"} {
		if s.Index(id) >= 0 {
			return id
		}
	}
	return ""
}

// Show adds the column to a schema that has remote addresses, behind them.
func Show(s *row.Schema) {
	if !Can(s) {
		return
	}
	from := remote(s)
	s.Derive(from, row.Column{
		ID: Column, Head: "RNAME", Help: "name of the remote address, as a name server or a TLS client told it; absent if nobody did",
		Kind: row.Text, Div: 1, Scale: 1, Width: 20, Left: true, Key: true, As: Column,
	}, from, "remote")
}

// Namer makes the name of a remote address.
func (t *Table) Namer(r *row.Row, c *row.Cell) {
	number := func(id string) uint64 {
		if c := r.Get(id); c != nil && c.Kind == row.Uint {
			return c.N
		}
		return 0
	}
	n := Name{Netns: uint32(number("netns")), PID: uint32(number("pid")), Sock: number("sock"), Addr: c.IP()}
	*c = row.Cell{}
	if name := t.Of(n); name != "" {
		c.SetText(name)
	}
}
