// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"seine/internal/agent"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
)

// shedTools are the tools that the guard stops, in this order, after the rows of connections.
// It never stops the tools that most findings and all turns come from.
var shedTools = []string{"gethostlatency", "soaccept", "skbdrop", "tcpsynbl", "dns"}

// shedConns is the name of the first step.
const shedConns = "flows: rows of connections"

// withoutConns passes rows on. While it is off, it drops those of connections.
type withoutConns struct {
	row.Sink
	off atomic.Bool
}

func (w *withoutConns) Row(r *row.Row) error {
	if w.off.Load() && isConns(r.Schema) {
		return nil
	}
	return w.Sink.Row(r)
}

func isConns(s *row.Schema) bool { return s.Tool == "flows" && s.View == "connections" }

// withoutConnsOf removes the schema of connections.
func withoutConnsOf(all []*row.Schema) []*row.Schema {
	return slices.DeleteFunc(slices.Clone(all), isConns)
}

// A shedStep is work that the agent can stop and start again.
type shedStep struct {
	name string
	less func() bool // false: there is nothing to stop
	more func() error
}

// A shedder stops and restarts work of the agent when the guard says so.
type shedder struct {
	*holder
	engine *tool.Engine
	rec    *record.Recorder
	guard  agent.Guard
	plan   []*watched
	told   func() // is called after each change

	mu   sync.Mutex
	left []*shedStep // not taken yet, the next one first
	off  []*shedStep // taken, the latest one last
}

// steps returns the steps in order.
func (s *shedder) steps(ctx context.Context, wait *sync.WaitGroup) []*shedStep {
	s.conns.off.Store(false)
	s.left = []*shedStep{{shedConns, func() bool { s.conns.off.Store(true); return true }, func() error { s.conns.off.Store(false); return nil }}}
	for _, name := range shedTools {
		for _, w := range s.plan {
			if w.recorded && strings.Fields(w.line)[0] == name {
				s.left = append(s.left, &shedStep{name, func() bool { return s.end(w) }, func() error { return s.begin(ctx, wait, w) }})
				break
			}
		}
	}
	return s.left
}

// end stops a tool.
func (s *shedder) end(w *watched) bool {
	if w.taped == nil {
		return false // this kernel cannot run it
	}
	w.stop()
	<-w.ended
	s.model.Asked(w.run.tool.Name, "the agent took more processor time than --max-cpu")
	w.taped = nil
	return true
}

// begin starts a tool again.
func (s *shedder) begin(ctx context.Context, wait *sync.WaitGroup, w *watched) error {
	if err := s.attach(s.engine, s.rec, w); err != nil {
		return err
	}
	s.start(ctx, wait, w)
	return nil
}

// names are the names of the steps that were taken.
func (s *shedder) names() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range s.off {
		out = append(out, step.name)
	}
	return out
}

// tell takes the processor time that was used until now, and acts on it.
func (s *shedder) tell(now time.Time, used time.Duration) {
	if by := s.guard.Tell(now, used); by != 0 {
		s.change(by)
		s.told()
	}
}

// change takes one step, or takes the last one back.
func (s *shedder) change(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case by > 0 && len(s.left) > 0:
		step := s.left[0]
		s.left, s.off = s.left[1:], append(s.off, step)
		if step.less() {
			s.log.Warn("the agent exceeds --max-cpu: it stops this for now", "what", step.name)
		}
	case by < 0 && len(s.off) > 0:
		step := s.off[len(s.off)-1]
		s.left, s.off = append([]*shedStep{step}, s.left...), s.off[:len(s.off)-1]
		s.log.Info("the agent starts this again", "what", step.name)
		if err := step.more(); err != nil {
			s.log.Error("it cannot be started again", "what", step.name, "reason", oneLine(err))
		}
	}
}
