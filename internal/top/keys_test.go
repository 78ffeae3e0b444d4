// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strings"
	"testing"
	"time"

	"seine/internal/watch"
)

// TestDrill: a service, its connections, one of them, and back again.
func TestDrill(t *testing.T) {
	snap := world(500)
	s := opened(snap, Services, "j", "enter")
	if l := s.level(); l == nil || l.service == nil || l.service.Comm != "nginx" {
		t.Fatalf("got %+v, want the connections of nginx", l)
	}
	for _, k := range s.shown.visible {
		if c := k.(watch.ConnKey); c.Lport != 443 {
			t.Errorf("%v is not a connection of nginx :443", c)
		}
	}
	press(s, snap, "enter")
	if l := s.level(); l == nil || l.conn == nil || len(s.Follows()) != 1 {
		t.Fatalf("got %+v, want one connection that is followed", l)
	}
	press(s, snap, "esc")
	press(s, snap, "esc")
	if s.level() != nil || s.Screen != Services {
		t.Errorf("got %+v, want the services again", s.levels)
	}
	if got := s.shown.selected.(*service).Comm; got != "nginx" {
		t.Errorf("the cursor is at %s, want nginx, where it was", got)
	}
}

// TestCursor: it stays with its row when the order changes, and at the top when it was never
// moved.
func TestCursor(t *testing.T) {
	snap := world(500)
	s := opened(snap, Services)
	turn := func() {
		snap.Answer.Findings[0], snap.Answer.Findings[1] = snap.Answer.Findings[1], snap.Answer.Findings[0]
		snap.Answer.Findings[0].Severity, snap.Answer.Findings[1].Severity = 2, 1
		Draw(s, snap, 80, 24, Look{})
	}
	if got := s.shown.selected.(*service).Comm; got != "shop" {
		t.Fatalf("the worst is %s, want shop", got)
	}
	turn()
	if got := s.shown.selected.(*service).Comm; got != "nginx" || s.shown.at != 0 {
		t.Errorf("a cursor that was not moved is at %s, line %d, want nginx, 0", got, s.shown.at)
	}
	press(s, snap, "j", "k")
	turn()
	if got := s.shown.selected.(*service).Comm; got != "nginx" || s.shown.at != 1 {
		t.Errorf("a cursor that was moved is at %s, line %d, want nginx, 1", got, s.shown.at)
	}
}

// TestMove: to both ends, by pages, and never beyond.
func TestMove(t *testing.T) {
	snap := world(500)
	s := opened(snap, Connections)
	n := s.shown.matched
	for _, c := range []struct {
		keys string
		want int
	}{{"k", 0}, {"j", 1}, {"pgdown", 1 + s.rows - 1}, {"G", n - 1}, {"j", n - 1}, {"pgdown", n - 1}, {"pgup", n - s.rows}, {"g", 0}, {"pgup", 0}, {"end", n - 1}, {"home", 0}} {
		if press(s, snap, c.keys); s.shown.at != c.want {
			t.Errorf("%s: line %d, want %d", c.keys, s.shown.at, c.want)
		}
		if s.shown.at < s.shown.top || s.shown.at >= s.shown.top+s.rows {
			t.Errorf("%s: line %d is not among the %d from %d on", c.keys, s.shown.at, s.rows, s.shown.top)
		}
	}
}

// TestFilter: completion, what is wrong, and what it keeps.
func TestFilter(t *testing.T) {
	snap := world(500)
	s := opened(snap, Connections, "/")
	typeIn(s, snap, "rp")
	press(s, snap, "tab")
	typeIn(s, snap, "== 65535 && com")
	press(s, snap, "tab")
	typeIn(s, snap, `== "shop"`)
	if got, want := string(s.input.text), `rport == 65535 && comm == "shop"`; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	press(s, snap, "enter")
	if s.input != nil || s.shown.matched != 46 || s.shown.total != 500 {
		t.Errorf("got %d of %d, want 46 of 500", s.shown.matched, s.shown.total)
	}
	press(s, snap, "/", "ctrl+u")
	typeIn(s, snap, "nosuch > 1")
	press(s, snap, "enter")
	if s.input == nil || !strings.Contains(s.input.err, "nosuch") {
		t.Errorf("got %+v, want an error about nosuch", s.input)
	}
	press(s, snap, "esc")
	if q := s.query(); q.where != `rport == 65535 && comm == "shop"` {
		t.Errorf("a filter that was left has changed %q", q.where)
	}
	press(s, snap, "esc")
	if q := s.query(); q.where != "" || s.shown.matched != 500 {
		t.Errorf("Esc leaves %q, %d rows, want all 500", q.where, s.shown.matched)
	}
}

// TestTypedKeys: keys that have a meaning are letters in a filter.
func TestTypedKeys(t *testing.T) {
	snap := world(5)
	s := opened(snap, Services, "/")
	typeIn(s, snap, "q1cs?j/")
	if s.input == nil || string(s.input.text) != "q1cs?j/" {
		t.Errorf("got %+v", s.input)
	}
	if press(s, snap, "ctrl+c") != Quit {
		t.Error("Ctrl-C does not end it")
	}
}

// TestSort: each column that is seen, in both directions.
func TestSort(t *testing.T) {
	snap := world(500)
	s := opened(snap, Connections)
	seen := map[string]bool{}
	for range len(connections().sortable()) {
		press(s, snap, "s")
		seen[s.query().sort] = true
	}
	if len(seen) != len(connections().sortable()) {
		t.Errorf("got %d orders, want %d", len(seen), len(connections().sortable()))
	}
	s = NewState(Connections, "", "srtt_us", false)
	Draw(s, snap, 80, 24, Look{})
	if got := s.shown.selected.(*conn).SRTT; got != 85+499 {
		t.Errorf("the longest round-trip time is %d, want %d", got, 85+499)
	}
	press(s, snap, "S")
	if got := s.shown.selected.(*conn).SRTT; got != 85 {
		t.Errorf("the shortest round-trip time is %d, want 85", got)
	}
}

// TestPause: a screen that is paused stays as it is while the model goes on.
func TestPause(t *testing.T) {
	snap := world(500)
	n := 500
	all := snap.View.Conns
	snap.View.Conns = func(do func(*watch.Conn)) {
		i := 0
		all(func(c *watch.Conn) {
			if i++; i <= n {
				do(c)
			}
		})
	}
	s := opened(snap, Connections, "space")
	before := Draw(s, snap, 80, 24, Look{})
	n = 3
	if after := Draw(s, snap, 80, 24, Look{}); !s.Paused || after != before {
		t.Errorf("a screen that is paused has changed:\n%s", after)
	}
	if press(s, snap, "space") != Refresh || s.Paused {
		t.Error("Space does not go on")
	}
}

// TestTravel: [ and ] go through time, and Esc comes back.
func TestTravel(t *testing.T) {
	snap := world(5)
	s := opened(snap, Services)
	if press(s, snap, "["); !s.At.Equal(snap.At.Add(-step)) {
		t.Errorf("[ goes to %v, want 10 s before %v", s.At, snap.At)
	}
	snap.At, snap.Behind = snap.At.Add(-step), step
	if press(s, snap, "]"); !s.At.IsZero() {
		t.Errorf("] goes to %v, want the latest moment", s.At)
	}
	if press(s, snap, "[", "["); !s.At.Equal(snap.At.Add(-2 * step)) {
		t.Errorf("two [ before the next snapshot go to %v, want 20 s before %v", s.At, snap.At)
	}
	press(s, snap, "esc")
	if !s.At.IsZero() {
		t.Errorf("Esc stays at %v", s.At)
	}
	snap.Behind = 0
	if press(s, snap, "]"); !s.At.IsZero() || s.note == "" {
		t.Errorf("] beyond the end goes to %v, and says %q", s.At, s.note)
	}
}

// TestCommand: the command behind a screen.
func TestCommand(t *testing.T) {
	snap := world(500)
	for _, c := range []struct {
		screen Screen
		keys   []string
		want   string
	}{
		{Services, nil, "seine flows --view services"},
		{Services, []string{"j", "enter"}, "seine flows --view connections --comm nginx --lport 443"},
		{Connections, []string{"enter"}, "seine flows --view connections --all --lport 443 --raddr 10.1.0.126 --rport 20000"},
		{Events, []string{"g"}, "seine soconnect --comm shop --raddr 10.0.0.5 --rport 6379"},
		{Findings, nil, "seine flows --view connections --raddr 10.0.0.5 --rport 5432"},
	} {
		got := opened(snap, c.screen, c.keys...).Command(snap)
		if got != c.want {
			t.Errorf("%s, %q: got %q, want %q", Screens[c.screen], c.keys, got, c.want)
		}
	}
	s := NewState(Services, `comm == "it's"`, "", false)
	Draw(s, snap, 80, 24, Look{})
	if got, want := s.Command(snap), `seine flows --view services --where 'comm == "it'\''s"'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.Runs = func(string) bool { return false }
	if got, want := s.Command(snap), "seine flows --view services"; got != want {
		t.Errorf("a filter that the tool does not take: got %s, want %s", got, want)
	}
	snap.From, snap.At = "/tmp/a b", time.Unix(1_700_000_000, 0)
	if got, want := s.Command(snap), "seine flows --view services --from '/tmp/a b' --since 2026-11-16T03:00:00Z --until 2026-11-16T03:00:10Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
