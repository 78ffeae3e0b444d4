// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
)

// Owners stands for the object that writes a table of owners. Its source is bpf/owners.bpf.c. It
// has points as tools have, and no rows.
var Owners = &Tool{Name: "owners", Views: func(any) []View { return nil }}

const (
	ownersMap    = "owners"    // its name in every object
	listenersMap = "listeners" // likewise
	ownMap       = "owner_own" // what tools keep of sockets besides, where the table is shared
)

// asks is what a tool asks of a table that it shares: owner_wants of owner.h, if it is alone.
func (o ownerOption) asks() ownerOption {
	if o&ownerGives != 0 { // an entry can be given away only if it is there from the birth on
		o |= ownerTimes
	}
	return o & (ownerAll | ownerTimes | ownerListenersOnly)
}

// with is what tools ask for together.
func (o ownerOption) with(p ownerOption) ownerOption {
	return (o|p)&^ownerListenersOnly | o&p&ownerListenersOnly
}

// A tableKey tells tables apart. An entry says whether its process is in the cgroup that
// --cgroup names, so tools share a table if they name the same.
type tableKey struct {
	cgroup uint64
	level  int
}

// owners are the tables of an engine. Usually there is one.
type owners struct {
	mu     sync.Mutex
	tables map[tableKey]*table
}

// A table is who owns which socket, for all tools of an engine. Its programs are attached
// before those of the first tool and detached after those of the last.
type table struct {
	key   tableKey
	opts  Options // of the first tool
	users int
	wants ownerOption // of all tools together
	maps  map[string]*ebpf.Map

	mu      sync.Mutex   // guards the sets
	sets    []*probe.Set // the first has made the maps
	relayed bool         // it calls programs of a tool: relay.go. Guarded by the lock of all tables
	release *probe.Set   // comes after the programs of tools; nil: no tool needs it
}

// ownersDone is the point whose programs end the entries of sockets that are not TCP's.
const ownersDone = "owner_release"

// points are the points of the table if this is what tools ask for, in the order of attaching.
func (o ownerOption) points(k *probe.Kernel, spec *ebpf.CollectionSpec) []probe.Point {
	all := held(spec, slices.Concat(ownersFirst, ownersLast))
	return withRelays(slices.DeleteFunc(all, func(p probe.Point) bool {
		return p.Name == ownersDone || !o.has(p.Name) || p.Needed != nil && !p.Needed(k)
	}), spec)
}

// own are the points of a tool that shares a table: all but those that are only there
// to write it.
func (o ownerOption) own(points []probe.Point) []probe.Point {
	return slices.DeleteFunc(slices.Clone(points), func(p probe.Point) bool {
		if !strings.HasPrefix(p.Name, "owner_") {
			return false
		}
		switch p.Name {
		case ownerSeed:
			return o&ownerFinds == 0
		case "owner_accept", "owner_uring":
			return o&ownerAccepts == 0
		case "owner_gone", "owner_made", ownersDone:
			return o&ownerOwn == 0
		}
		return true
	})
}

// joinOwners gives the tool the engine's table, with all that it needs: nil if it needs none,
// or is alone and has its own. The table is made for the first tool.
func (e *Engine) joinOwners(p *Prepared) (*table, error) {
	o, ok := ownerOptionsOf(p.spec)
	if !ok || e.alone {
		return nil, nil
	}
	var key tableKey
	if w := &p.opts.Filter; w.On&FilterCgroup != 0 {
		key = tableKey{w.Cgroup, w.CgroupLevel}
	}
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	t := e.owners.tables[key]
	if t == nil {
		t = &table{key: key, opts: p.opts}
	}
	if err := t.grow(e, o.asks()); err != nil {
		if t.users == 0 {
			t.close()
		}
		return nil, fmt.Errorf("owners: %w", err)
	}
	if e.owners.tables == nil {
		e.owners.tables = map[tableKey]*table{}
	}
	e.owners.tables[key] = t
	t.users++
	return t, nil
}

// settled is called when the programs of a tool that shares the table are attached. The program
// that deletes entries of released sockets has to run after them, since they may still ask.
func (e *Engine) settled(t *table, p *Prepared) error {
	if o, _ := ownerOptionsOf(p.spec); t == nil || o&ownerAll == 0 {
		return nil
	}
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	spec, err := t.spec(e.kernel)
	if err != nil {
		return err
	}
	last := held(spec, slices.DeleteFunc(slices.Clone(ownersLast), func(p probe.Point) bool { return p.Name != ownersDone }))
	s, err := t.attach(e, spec, last)
	if err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.release != nil {
		t.release.Close()
	}
	t.release = s
	return nil
}

// leaveOwners gives the table back. The programs of the tool have been detached.
func (e *Engine) leaveOwners(t *table) {
	if t == nil {
		return
	}
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(e.owners.tables, t.key)
		t.close()
	}
}

// grow attaches the programs for what a further tool asks for, and walks over all sockets again,
// since that concerns other sockets.
func (t *table) grow(e *Engine, wants ownerOption) error {
	if t.sets != nil {
		if wants = wants.with(t.wants); wants == t.wants {
			return nil
		}
	}
	spec, err := t.spec(e.kernel)
	if err != nil {
		return err
	}
	points := wants.points(e.kernel, spec)
	if t.sets != nil {
		had := t.wants.points(e.kernel, spec)
		points = slices.DeleteFunc(points, func(p probe.Point) bool {
			return slices.ContainsFunc(had, func(q probe.Point) bool { return p.Name == q.Name })
		})
		if err := t.sets[0].Vars["owner_wants"].Set(uint32(wants)); err != nil {
			return fmt.Errorf("owner_wants: %w", err)
		}
	} else if err := spec.Variables["owner_wants"].Set(uint32(wants)); err != nil {
		return fmt.Errorf("owner_wants: %w", err)
	}
	if len(points) > 0 {
		s, err := t.attach(e, spec, points)
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.sets = append(t.sets, s)
		t.mu.Unlock()
		t.maps = t.sets[0].Maps
	}
	t.wants = wants
	for _, it := range t.sets[0].Iters[ownerSeed] {
		if err := drain(it); err != nil {
			return fmt.Errorf("walking over open sockets: %w", err)
		}
	}
	return nil
}

// spec is the table's object, as large as --memory of the first tool lets it be.
func (t *table) spec(k *probe.Kernel) (*ebpf.CollectionSpec, error) {
	spec, err := object.Spec(Owners.Name)
	if err != nil {
		return nil, err
	}
	p := &Prepared{Tool: Owners, spec: spec, opts: t.opts, Points: held(spec, slices.Concat(ownersFirst, ownersLast))}
	var w Wanted
	if t.key != (tableKey{}) {
		w = Wanted{On: FilterCgroup, Cgroup: t.key.cgroup, CgroupLevel: t.key.level}
	}
	if err := w.constants(spec); err != nil {
		return nil, err
	}
	if err := setConstant(spec, "who_thread", true); err != nil {
		return nil, err
	}
	if err := p.size(); err != nil {
		return nil, err
	}
	// Each of the tools would have a table of its own. Where memory is allocated by use, the one
	// that they share has room for manySockets, unless --memory says less than the default.
	if p.opts.Memory >= DefaultMemory {
		p.opts.Memory *= 2
	}
	return spec, p.settle(k)
}

func (t *table) attach(e *Engine, spec *ebpf.CollectionSpec, points []probe.Point) (*probe.Set, error) {
	share := t.maps
	if share == nil {
		share = e.ring.maps()
	}
	return probe.Attach(e.kernel, spec, points, probe.Options{Force: t.opts.Force, Log: t.opts.Log, Share: share})
}

// shared are the maps that stand in for those of a tool. Its own are fitted to them.
func (t *table) shared(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	out := map[string]*ebpf.Map{}
	own := spec.Maps[ownMap]
	if own != nil {
		own.MaxEntries = spec.Maps[ownersMap].MaxEntries
	}
	for _, name := range []string{ownersMap, listenersMap} {
		if s := spec.Maps[name]; s != nil {
			out[name] = t.maps[name]
			s.ValueSize = t.maps[name].ValueSize()
		}
	}
	o, _ := ownerOptionsOf(spec)
	return out, setConstant(spec, ownerOptions, o|ownerShared)
}

// all are the sets of the table. The caller holds the lock.
func (t *table) all() []*probe.Set {
	if t.release == nil {
		return t.sets
	}
	return append(slices.Clone(t.sets), t.release)
}

// choices are the ways that the table's points took.
func (t *table) choices() (out []probe.Choice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.all() {
		out = append(out, s.Choices...)
	}
	return out
}

// count adds to r the losses of the table until now. They concern all of its tools.
func (t *table) count(r *Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lost [lossKinds]uint64
	if v := t.sets[0].Vars["losses"]; v != nil {
		v.Get(&lost)
	}
	for i, n := range lost {
		r.Losses[i] += n
	}
	for _, s := range t.all() {
		r.Missed += s.Missed()
	}
}

func (t *table) close() {
	for _, s := range slices.Backward(t.all()) {
		s.Detach()
	}
	for _, s := range slices.Backward(t.all()) {
		s.Close()
	}
}

// Owners says what the tables of owners that tools share take: there is one unless tools
// have different --cgroup.
func (e *Engine) Owners() (out []OwnersReport) {
	e.owners.mu.Lock()
	defer e.owners.mu.Unlock()
	for _, t := range e.owners.tables {
		out = append(out, t.report())
	}
	return out
}

// of is what one table takes.
func (o *owners) of(t *table) *OwnersReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := t.report()
	return &r
}

// report needs the lock of all tables, which the caller holds.
func (t *table) report() OwnersReport {
	r := OwnersReport{Tools: t.users}
	if t.relayed { // a tool that does not look owners up
		r.Tools--
	}
	for _, name := range []string{ownersMap, listenersMap} {
		r.Maps = append(r.Maps, MapUse{name, entries(t.maps[name]), t.maps[name].MaxEntries()})
	}
	for _, s := range t.all() {
		for name, p := range s.Programs {
			if st, err := p.Stats(); err == nil {
				r.Programs = append(r.Programs, ProgramStats{name, st.RunCount, st.Runtime})
			}
		}
	}
	m := map[string]*ebpf.Map{}
	for name, one := range t.maps {
		if one.Type() != ebpf.RingBuf {
			m[name] = one
		}
	}
	r.Memory, _ = memory(m)
	return r
}

// An OwnersReport is about a table of owners that tools share.
type OwnersReport struct {
	Tools    int // that share it
	Programs []ProgramStats
	Memory   uint64 // bytes of its maps, as the kernel counts them
	Maps     []MapUse
}

// spent is how long the programs of the tables have run.
func (o *owners) spent() (sum time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.tables {
		for _, s := range t.all() {
			for _, p := range s.Programs {
				if st, err := p.Stats(); err == nil {
					sum += st.Runtime
				}
			}
		}
	}
	return sum
}
