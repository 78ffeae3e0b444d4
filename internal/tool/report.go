// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// A Report is what can be said after a run.
type Report struct {
	Duration    time.Duration
	Events      uint64            // records read from the ring
	Losses      [lossKinds]uint64 // counted in the kernel: enum loss of event.h
	Undecodable uint64            // records that are too short
	Missed      uint64            // runs of programs that the kernel skipped
	Unseen      []string          // what a view says it could not read
	Programs    []ProgramStats
	MapUse      []MapUse
	Memory      uint64 // bytes of maps, as the kernel counts them
	Budget      uint64 // bytes that they may take
	Ring        uint64 // bytes of the ring
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
	for _, m := range r.MapUse {
		if m.Name == name {
			return int(m.Capacity)
		}
	}
	return 0
}

// The kinds of losses, enum loss of event.h in the same order.
const (
	LossRing = iota
	LossMap
	LossSpan
	LossStack
	LossOwnerFull
	LossOwner
	LossRead
	lossKinds
)

// How one of them and several are called, and what to do about it.
var losses = [lossKinds]struct{ one, many, remedy string }{
	LossRing:      {"event did not fit the ring", "events did not fit the ring", "a larger --buffer or a narrower filter helps"},
	LossMap:       {"count was refused, its map being full", "counts were refused, their map being full", "a larger --memory, fewer --by fields or a filter helps"},
	LossSpan:      {"beginning was refused, its map being full", "beginnings were refused, their map being full", "a larger --memory or a filter helps"},
	LossStack:     {"stack could not be kept", "stacks could not be kept", "a larger --memory or a filter helps"},
	LossOwnerFull: {"socket's owner was refused, their map being full", "sockets' owners were refused, their map being full", "a larger --memory helps"},
	LossOwner: {"row or test met a socket of unknown owner", "rows or tests met a socket of unknown owner",
		"it is the kernel's own, or nobody has used it since the start; 'ss -tnpe' may name its process, 'seine man TOOL' says what is missed"},
	LossRead: {"read of a process's memory failed", "reads of a process's memory failed", ""},
}

// Lost is how many events did not make it into the output.
func (r *Report) Lost() uint64 {
	return r.Losses[LossRing] + r.Losses[LossMap] + r.Losses[LossSpan] + r.Undecodable + r.Missed
}

// Warnings names every kind of loss with its number and what to do about it.
func (r *Report) Warnings() []string {
	var out []string
	add := func(n uint64, one, many, remedy string) {
		if n == 0 {
			return
		}
		what := Count(n, one, many)
		if remedy != "" {
			what += ": " + remedy
		}
		out = append(out, what)
	}
	for i, n := range r.Losses {
		add(n, losses[i].one, losses[i].many, losses[i].remedy)
	}
	add(r.Undecodable, "record could not be decoded", "records could not be decoded", "")
	add(r.Missed, "run of a BPF program was skipped by the kernel", "runs of BPF programs were skipped by the kernel", "another tracer may be at the same hooks")
	return append(out, r.Unseen...)
}

// Count is a number of things: 1 row, 1,204 rows.
func Count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + many
}

// Thousands writes 1204 as 1,204.
func Thousands(n uint64) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// collect reads what the kernel side and the programs counted.
func (s *Session) collect() {
	r := &s.report
	if v := s.set.Vars["losses"]; v != nil {
		v.Get(&r.Losses)
	}
	r.Missed = s.set.Missed()
	for name, p := range s.set.Programs {
		st, err := p.Stats()
		if err != nil {
			continue
		}
		if st.RunCount > 0 {
			r.Programs = append(r.Programs, ProgramStats{name, st.RunCount, st.Runtime})
		}
	}
	if !s.opts.Stats {
		return
	}
	for name, m := range s.set.Maps {
		if m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash {
			r.MapUse = append(r.MapUse, MapUse{name, entries(m), m.MaxEntries()})
		}
	}
}

func entries(m *ebpf.Map) (n uint32) {
	Walk(m, func(_, _ []byte) error {
		n++
		return nil
	})
	return n
}
