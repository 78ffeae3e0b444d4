// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"io"
	"slices"

	"github.com/cilium/ebpf"

	"seine/internal/host"
	"seine/internal/probe"
)

// The table of owners has programs at each send and receive. A tool that wants nothing of TCP's
// sockets there (probe.Point.NotTCP) needs no programs at the same hooks: those of the table call
// its programs for all other sockets. So a send or receive on TCP runs one program, not two.
//
// A called program has no protection against running twice at a time on a processor. Before 7.0
// it needs none, because a tracepoint is not preempted. It has to be compiled, because the kernel
// interprets no program that both calls functions and other programs.

// relaying are the ways of the table's programs that call those of a tool, by point.
var relaying = map[string]probe.Way{
	"owner_send": {Name: "btf", Programs: []string{"owner_send__relay"}},
	"owner_recv": {Name: "btf", Programs: []string{"owner_recv__relay"}},
}

// relayMap is the map that they find the programs in.
const relayMap = "relays"

// relayPlaces are the places in it, by the section of a program: RELAY_SEND and RELAY_RECV of owners.bpf.c.
var relayPlaces = map[string]uint32{"tp_btf/sock_send_length": 0, "tp_btf/sock_recv_length": 1}

// withRelays adds these ways to the points of a table, where the kernel permits it.
func withRelays(points []probe.Point, spec *ebpf.CollectionSpec) []probe.Point {
	points = slices.Clone(points)
	for i, p := range points {
		w, ok := relaying[p.Name]
		if !ok {
			continue
		}
		points[i].Ways = slices.DeleteFunc(p.WaysIn(spec), func(w probe.Way) bool { return w.Name == "relay" })
		if compiles() && !host.TracepointsPreempt() {
			points[i].Ways = slices.Insert(points[i].Ways, 0, w)
		}
	}
	return points
}

// A relay is the programs of one tool that those of a table call.
type relay struct {
	table  *table
	places *ebpf.Map
	grace  *grace
	used   bool
	before uint64 // runs of the table's programs that the kernel had skipped
}

// joinRelay makes the tool a user of a table that calls its programs: nil if it has no such
// programs, or no table is free for it. The table stays as long as the tool does.
func (e *Engine) joinRelay(p *Prepared) (*relay, error) {
	if e.alone || !slices.ContainsFunc(p.Points, func(p probe.Point) bool { return p.NotTCP }) {
		return nil, nil
	}
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	for _, t := range e.owners.tables {
		if t.relayed || len(t.relays()) < len(relaying) {
			continue
		}
		g, err := newGrace()
		if err != nil {
			return nil, err
		}
		t.relayed = true
		t.users++
		return &relay{table: t, places: t.maps[relayMap], grace: g, before: t.relayMissed()}, nil
	}
	return nil, nil
}

// leaveRelay gives the table back. Its programs no longer call those of the tool.
func (e *Engine) leaveRelay(r *relay) {
	if r == nil {
		return
	}
	r.grace.close()
	e.owners.mu.Lock()
	r.table.relayed = false
	e.owners.mu.Unlock()
	e.leaveOwners(r.table)
}

// place has the table call a program, if it can. Nil: the program has to be attached.
func (r *relay) place(p probe.Point, prog *ebpf.Program, ps *ebpf.ProgramSpec) io.Closer {
	if r == nil || !p.NotTCP {
		return nil
	}
	at, ok := relayPlaces[ps.SectionName]
	if !ok || r.places.Put(at, prog) != nil {
		return nil
	}
	r.used = true
	return called{r.places, at, r.grace}
}

// called is a program that others call.
type called struct {
	in    *ebpf.Map
	at    uint32
	grace *grace
}

// Close returns when the program does not run any more.
func (c called) Close() error {
	if err := c.in.Delete(c.at); err != nil {
		return err
	}
	return c.grace.wait()
}

// missed is how many runs the kernel has skipped since the tool came.
func (r *relay) missed() uint64 {
	if r == nil {
		return 0
	}
	n := r.table.relayMissed()
	return n - min(n, r.before)
}

// relays are the programs of the table that call those of a tool.
func (t *table) relays() (out []*ebpf.Program) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sets {
		for _, c := range s.Choices {
			if w, ok := relaying[c.Point]; ok && slices.Equal(c.Programs, w.Programs) {
				out = append(out, s.Programs[w.Programs[0]])
			}
		}
	}
	return out
}

func (t *table) relayMissed() (n uint64) {
	for _, p := range t.relays() {
		if st, err := p.Stats(); err == nil {
			n += st.RecursionMisses
		}
	}
	return n
}
