// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"

	"seine/internal/watch"
	"seine/internal/why"
)

// Command is the command line that shows the rows of the screen, or the row under the cursor
// if its kind has a tool of its own.
func (s *State) Command(snap *Snapshot) string {
	tool, where := "", ""
	var about watch.ServiceKey
	if q := s.query(); q != nil {
		where = q.where
	}
	switch l := s.level(); {
	case l != nil && l.service != nil:
		tool, about = "flows --view connections", *l.service
	case l != nil && l.who != nil:
		tool, about = "flows --view connections", watch.ServiceKey{Who: *l.who}
	case l != nil && l.conn != nil:
		tool = "flows --view connections --all"
		about = watch.ServiceKey{Lport: l.conn.Lport, Raddr: l.conn.Raddr, Rport: l.conn.Rport}
	case l != nil && l.event != nil:
		return s.ofEvent(snap, *l.event)
	case l != nil:
		return s.next(snap, l.finding)
	case s.Screen == Services || s.Screen == Processes:
		tool = "flows --view services"
	case s.Screen == Connections:
		tool = "flows --view connections"
	case s.Screen == Events:
		if e, ok := s.shown.selected.(*event); ok {
			return s.ofEvent(snap, e.TallyKey)
		}
		return ""
	default:
		if f, ok := s.shown.selected.(*finding); ok {
			return s.next(snap, f.ID)
		}
		return "seine why"
	}
	out := why.Command(tool, about)
	if snap.From != "" {
		out += s.past(snap)
	}
	if where != "" {
		if with := out + " --where " + quoted(where); s.Runs == nil || s.Runs(with) {
			return with
		}
	}
	return out
}

// ofEvent is the command that shows a kind of event of a service.
func (s *State) ofEvent(snap *Snapshot, k watch.TallyKey) string {
	tool := kinds[k.Kind].tool
	if tool == "" {
		return ""
	}
	about := watch.ServiceKey{Who: k.Who, Lport: k.Lport, Raddr: k.Raddr, Rport: k.Rport}
	for _, try := range []watch.ServiceKey{about, {Who: k.Who}, {}} {
		if out := why.Command(tool, try); s.Runs == nil || s.Runs(out) {
			return out + s.past(snap)
		}
	}
	return ""
}

// next is the command that a finding names.
func (s *State) next(snap *Snapshot, id string) string {
	for _, f := range snap.Answer.Findings {
		if f.ID == id {
			return f.Next + s.past(snap)
		}
	}
	return ""
}

// past are the flags of a recording, around the shown time.
func (s *State) past(snap *Snapshot) string {
	if snap.From == "" {
		return ""
	}
	return " --from " + quoted(snap.From) + " --since " + snap.View.From.UTC().Format("2006-01-02T15:04:05Z") + " --until " + snap.View.To.UTC().Format("2006-01-02T15:04:05Z")
}

// quoted is a word for a shell.
func quoted(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(isWord(r) || strings.ContainsRune("-./:,@%+=", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
