// SPDX-License-Identifier: Apache-2.0

// Package top shows the network of this machine on one screen: services, processes,
// connections, events and findings, from a model of internal/watch.
//
//	watch.Model ─► Snapshot ─► Draw(state, snapshot, size) ─► lines of a screen
//	keys ───────────────────────► State
//
// Draw is a pure function: the same state, snapshot and size make the same screen.
package top

import (
	"slices"
	"time"

	"seine/internal/watch"
	"seine/internal/why"
)

// Recent is the window of rates, turns and findings. Long is the window of events.
const (
	Recent = 10 * time.Second
	Long   = 5 * time.Minute
)

// A Snapshot is the data of a screen.
type Snapshot struct {
	Host    string
	At      time.Time                            // the shown time
	Behind  time.Duration                        // how far that is in the past, 0: now
	From    string                               // the recording, "" if it is live
	View    *watch.View                          // of Recent
	Events  *watch.View                          // of Long; nil: not asked for
	Answer  *why.Answer                          // about View
	History func(k watch.ConnKey) []watch.Moment // of connections that are followed
	Conns   bool                                 // View.Conns are those of At
	Self    Self
}

// Self is the cost of seine itself.
type Self struct {
	CPU    float64 // share of one processor: 0.01 is a percent
	Memory uint64  // bytes
	Known  bool
}

// Take makes a snapshot of a model, now or at a time in the past.
func Take(m *watch.Model, at time.Time, events bool) *Snapshot {
	_, last := m.Span()
	s := &Snapshot{Conns: true}
	if at.IsZero() || !at.Before(last) {
		at = last
	} else {
		s.Conns, s.Behind = false, last.Sub(at)
	}
	s.At = at
	s.History = func(k watch.ConnKey) []watch.Moment { return m.History(k, at) }
	s.View = m.At(at, Recent)
	if events {
		s.Events = m.At(at, Long)
	}
	s.Answer = why.Judge(s.View, why.Options{})
	return s
}

// seconds is how long the window is; never 0.
func (s *Snapshot) seconds() float64 { return max(s.View.Seconds(), 1) }

// lost is how many events did not become rows.
func (s *Snapshot) lost() (n uint64) {
	for _, src := range s.View.Sources {
		n += src.Lost
	}
	return n
}

// verdict is the worst finding about a service, nil if there is none.
func (s *Snapshot) verdict(k watch.ServiceKey) *why.Finding {
	for _, f := range s.Answer.Findings {
		o := &f.Object
		if o.Who != k.Who || o.Comm == "" && o.Lport == 0 && o.Rport == 0 {
			continue
		}
		if !k.Out && o.Lport == k.Lport && o.Lport != 0 || k.Out && o.Lport == 0 && o.Raddr == k.Raddr && o.Rport == k.Rport {
			return f
		}
	}
	return nil
}

// verdictOf is the worst finding about anything of a process.
func (s *Snapshot) verdictOf(who watch.Who) *why.Finding {
	i := slices.IndexFunc(s.Answer.Findings, func(f *why.Finding) bool { return f.Object.Comm != "" && f.Object.Who == who })
	if i < 0 {
		return nil
	}
	return s.Answer.Findings[i]
}

// freeze copies what the model may change later.
func (s *Snapshot) freeze() {
	var all []watch.Conn
	s.View.Conns(func(c *watch.Conn) { all = append(all, *c) })
	s.View.Conns = func(do func(*watch.Conn)) {
		for i := range all {
			do(&all[i])
		}
	}
}
