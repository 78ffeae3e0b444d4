// SPDX-License-Identifier: Apache-2.0

package top

import (
	"io"
	"strings"
	"time"

	"seine/internal/row"
	"seine/internal/watch"
	"seine/internal/why"
	"seine/internal/words"
)

// Plain writes a screen as lines, as wide as they need to be and without control codes: for
// logs and screen readers.
func Plain(w io.Writer, s *State, snap *Snapshot) error {
	const wide = 1 << 10
	l := Look{Plain: true}
	q := *s.query()
	var out []string
	var err error
	switch s.Screen {
	case Services:
		out, err = services().plain(snap.services, q)
	case Processes:
		out, err = processes().plain(snap.processes, q)
	case Connections:
		out, err = connections().plain(func(do func(*conn)) { snap.connections(nil, do) }, q)
	case Events:
		out, err = events().plain(snap.events, q)
	default:
		out, err = findings().plain(snap.findings, q)
	}
	if err != nil {
		return err
	}
	head := []string{words.Clean(snap.Host) + " " + snap.At.Format("2006-01-02 15:04:05") + ", last 10 s", snap.rates(wide, l), snap.headline(wide, l)}
	if s.Screen == Events {
		head = append(head, snap.totals())
	}
	_, err = io.WriteString(w, strings.Join(append(head, out...), "\n")+"\n\n")
	return err
}

// Schemas are the schemas of the rows that Rows writes.
func Schemas() []*row.Schema {
	return []*row.Schema{services().timed, processes().timed, connections().timed, events().timed, findings().timed}
}

// Rows writes one second of a model as rows of all screens. Connections are those with traffic
// in that second, and findings are those of the last ten seconds.
func Rows(m *watch.Model, second time.Time, to row.Sink) error {
	end := second.Add(time.Second)
	if first, last := m.Span(); last.Before(second) || second.Before(first) { // the model has no such second
		return to.End(row.End{Time: end, Output: true, Tool: "top"})
	}
	v := m.At(second, time.Second)
	snap := &Snapshot{At: second, View: v, Events: v, Conns: true, Answer: why.Judge(m.At(second, Recent), why.Options{})}
	spoke := func(c *watch.Conn) bool { return c.Last == second.Unix() }
	for _, err := range []error{
		services().rows(snap.services, end, to), processes().rows(snap.processes, end, to),
		connections().rows(func(do func(*conn)) { snap.connections(spoke, do) }, end, to),
		events().rows(snap.events, end, to), findings().rows(snap.findings, end, to),
	} {
		if err != nil {
			return err
		}
	}
	return to.End(row.End{Time: end, Output: true, Tool: "top"})
}
