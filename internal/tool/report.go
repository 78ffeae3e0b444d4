// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/row"
	"seine/internal/words"
)

// A Report describes a run, during it or after it.
type Report struct {
	Duration    time.Duration
	Events      uint64            // records read from the ring
	Rows        uint64            // that were made of them, and of what was counted
	Wakes       uint64            // how often the reader of the ring was woken
	Losses      [lossKinds]uint64 // counted in the kernel: enum loss of loss.h
	Undecodable uint64            // records that are too short
	Missed      uint64            // runs of programs that the kernel skipped
	Unseen      []string          // what a view says it could not read
	Programs    []ProgramStats
	MapUse      []MapUse
	Memory      uint64        // bytes of maps, as the kernel counts them
	Budget      uint64        // bytes that they may take
	Ring        uint64        // bytes of the ring
	Owners      *OwnersReport // the table that the tool shares with others; nil: it has its own, or --stats was not given
}

// ProgramStats is the cost of one program, where it was counted.
type ProgramStats struct {
	Name string
	Runs uint64
	Time time.Duration
}

// MapUse says how full a map is.
type MapUse struct {
	Name           string
	Used, Capacity uint32
}

// Capacity is how many entries a map has room for, where --stats was given.
func (r *Report) Capacity(name string) int {
	all := r.MapUse
	if r.Owners != nil {
		all = slices.Concat(all, r.Owners.Maps)
	}
	for _, m := range all {
		if m.Name == name {
			return int(m.Capacity)
		}
	}
	return 0
}

// The kinds of losses, enum loss of loss.h in the same order.
const (
	LossRing = iota
	LossMap
	LossSpan
	LossStack
	LossOwnerFull
	LossOwner
	LossRead
	LossBatch
	LossSame
	lossKinds
)

// What a kind of loss is called in JSON, how one of them and several are called,
// and what to do about it.
type lossText struct{ id, one, many, remedy string }

var losses = [lossKinds]lossText{
	LossRing:      {row.RingFull, "event did not fit the ring", "events did not fit the ring", "a larger --buffer or a narrower filter helps"},
	LossMap:       {"map_full", "count was not kept, because the map was full", "counts were not kept, because the map was full", "a larger --memory, fewer --by fields or a filter helps"},
	LossSpan:      {"start_full", "start was not recorded, because the map was full", "starts were not recorded, because the map was full", "a larger --memory or a filter helps"},
	LossStack:     {"stack_full", "stack could not be kept", "stacks could not be kept", "a larger --memory or a filter helps"},
	LossOwnerFull: {"owner_full", "socket's owner was not kept, because the map was full", "sockets' owners were not kept, because the map was full", "a larger --memory helps"},
	LossOwner: {row.OwnerUnknown, "row or test met a socket of unknown owner", "rows or tests met a socket of unknown owner",
		"it is the kernel's own, or nobody has used it since the start; 'ss -tnpe' may name its process, 'seine man TOOL' says what is missed"},
	LossRead:  {"unread", "read of a process's memory failed", "reads of a process's memory failed", ""},
	LossBatch: {"batch", "message beyond the 64th of one call was not counted", "messages beyond the 64th of one call were not counted", "Linux 6.3 and later see all of them"},
	LossSame: {"same_request", "io_uring request had the user_data of another one", "io_uring requests had the user_data of another one",
		"Linux 5.19 and later tell them apart"},
}

var (
	undecodable = lossText{"undecodable", "record could not be decoded", "records could not be decoded", ""}
	missed      = lossText{"skipped", "run of a BPF program was skipped by the kernel", "runs of BPF programs were skipped by the kernel", "another tracer may be at the same hooks"}
)

// each calls f with every kind of loss and how many there are.
func (r *Report) each(f func(t lossText, n uint64)) {
	for i, n := range r.Losses {
		f(losses[i], n)
	}
	f(undecodable, r.Undecodable)
	f(missed, r.Missed)
}

// Lost is how many events did not make it into the output, or not completely.
func (r *Report) Lost() (sum uint64) {
	r.each(func(_ lossText, n uint64) { sum += n })
	return sum
}

// Warnings names every kind of loss with its number and what to do about it.
func (r *Report) Warnings() (out []string) {
	r.each(func(t lossText, n uint64) {
		if n == 0 {
			return
		}
		what := words.Count(n, t.one, t.many)
		if t.remedy != "" {
			what += ": " + t.remedy
		}
		out = append(out, what)
	})
	return append(out, r.Unseen...)
}

// since is the losses after old.
func (r *Report) since(old *Report) (out []row.Loss) {
	var before []uint64
	old.each(func(_ lossText, n uint64) { before = append(before, n) })
	i := 0
	r.each(func(t lossText, n uint64) {
		if n > before[i] {
			out = append(out, row.Loss{Kind: t.id, N: n - before[i]})
		}
		i++
	})
	return out
}

// lossTick is how often losses are told while the tool runs, without an interval.
const lossTick = time.Second

// countLosses adds to r what the kernel side and the programs have lost until now.
func (s *Session) countLosses(r *Report) {
	if v := s.set.Vars["losses"]; v != nil {
		v.Get(&r.Losses)
	}
	r.Missed = s.set.Missed() + s.relay.missed()
	if s.owners != nil {
		s.owners.count(r)
		for i, n := range s.before.Losses {
			r.Losses[i] -= n
		}
		r.Missed -= min(r.Missed, s.before.Missed)
	}
	r.Undecodable = s.undecodable.Load()
}

// tellLosses hands the losses since the last time to the sink, and while the tool runs also to
// the function of OnLoss. At the end the summary shows them.
func (s *Session) tellLosses(ended bool) error {
	var now Report
	s.countLosses(&now)
	news := now.since(&s.told)
	if news == nil {
		return nil
	}
	s.told = now
	// A row of unknown owner is not lost, and each interval may have some: only the summary
	// says how many.
	worth := slices.ContainsFunc(news, func(l row.Loss) bool { return l.Kind != row.OwnerUnknown })
	if s.onLoss != nil && !ended && worth {
		s.onLoss(&now)
	}
	return s.sink.End(row.End{Time: time.Now(), Losses: news, Tool: s.schemas[0].Tool})
}

// OnLoss makes the session call f when something was lost, at most once an interval.
func (s *Session) OnLoss(f func(*Report)) { s.onLoss = f }

// Stats says how the session is doing, or how it did. It walks over the maps to see how
// full they are.
func (s *Session) Stats() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		return s.last
	}
	return s.stats(true)
}

// stats is Stats for a caller that holds the lock.
func (s *Session) stats(maps bool) *Report {
	r := &Report{
		Events: s.events.Load(), Rows: s.rows.Load(), Wakes: s.engine.ring.woke(), Unseen: slices.Clone(s.unseen),
		Budget: s.opts.Memory, Memory: s.memory, Ring: s.ring,
	}
	if !s.began.IsZero() {
		r.Duration = time.Since(s.began)
	}
	s.countLosses(r)
	for name, p := range s.set.Programs {
		st, err := p.Stats()
		if err != nil {
			continue
		}
		if st.RunCount > 0 {
			r.Programs = append(r.Programs, ProgramStats{name, st.RunCount, st.Runtime})
		}
	}
	if maps && s.owners != nil {
		r.Owners = s.engine.owners.of(s.owners)
	}
	for name, m := range s.set.Maps {
		if s.owners != nil && (name == ownersMap || name == listenersMap) {
			continue // see Owners
		}
		if maps && (m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash) {
			r.MapUse = append(r.MapUse, MapUse{name, entries(m), m.MaxEntries()})
		}
	}
	return r
}

// Spent is how long the programs of all sessions have run while the kernel timed them.
func (e *Engine) Spent() (sum time.Duration) {
	for _, s := range e.Sessions() {
		s.mu.Lock()
		if s.last == nil {
			for _, p := range s.set.Programs {
				if st, err := p.Stats(); err == nil {
					sum += st.Runtime
				}
			}
		}
		s.mu.Unlock()
	}
	return sum + e.owners.spent()
}

func entries(m *ebpf.Map) (n uint32) {
	Walk(m, func(_, _ []byte) error {
		n++
		return nil
	})
	return n
}
