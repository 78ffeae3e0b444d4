// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// golden holds a screen against testdata; UPDATE=1 writes it. Control codes are shown as ^[.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, "\x1b", "^[") + "\n"
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

var sizes = [][2]int{{80, 24}, {120, 40}, {200, 60}}

// TestScreens: all screens at three sizes, as they have been read and found good.
func TestScreens(t *testing.T) {
	for screen, name := range Screens {
		for _, size := range sizes {
			s := NewState(Screen(screen), "", "", false)
			golden(t, fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), Draw(s, world(500), size[0], size[1], Look{}))
		}
	}
}

// TestLooks: the same screen in colours for dark and for light, without colours, in ASCII.
func TestLooks(t *testing.T) {
	for name, l := range map[string]Look{"dark": {Color: true}, "light": {Color: true, Light: true}, "ascii": {ASCII: true}} {
		golden(t, "services-"+name, Draw(NewState(Services, "", "", false), world(500), 80, 24, l))
	}
}

// TestMany: no connection at all, and 100,000.
func TestMany(t *testing.T) {
	for screen, name := range Screens {
		golden(t, name+"-nothing", Draw(NewState(Screen(screen), "", "", false), world(0), 80, 24, Look{}))
	}
	golden(t, "connections-100000", Draw(NewState(Connections, "", "", false), world(100_000), 80, 24, Look{}))
}

// opened is a state after some keys.
func opened(snap *Snapshot, screen Screen, keys ...string) *State {
	s := NewState(screen, "", "", false)
	Draw(s, snap, 80, 24, Look{})
	press(s, snap, keys...)
	return s
}

// TestOpened: what Enter shows, help, a filter that is being written and one that is wrong.
func TestOpened(t *testing.T) {
	snap := world(500)
	for name, s := range map[string]*State{
		"opened-service":    opened(snap, Services, "j", "enter"),
		"opened-connection": opened(snap, Connections, "enter"),
		"opened-event":      opened(snap, Events, "enter"),
		"opened-finding":    opened(snap, Findings, "enter"),
		"help":              opened(snap, Connections, "?"),
		"filter":            opened(snap, Connections, "/", "r"),
		"filter-wrong":      opened(snap, Connections, "/", "r", "x", "enter"),
		"command":           opened(snap, Connections, "c"),
		"paused":            opened(snap, Connections, "space"),
	} {
		golden(t, name, Draw(s, snap, 80, 24, Look{}))
	}
	golden(t, "opened-connection-120x40", Draw(opened(snap, Connections, "enter"), snap, 120, 40, Look{}))
	golden(t, "opened-connection-ascii", Draw(opened(snap, Connections, "enter"), snap, 80, 24, Look{ASCII: true}))
}

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// TestBounds: whatever the size, a screen has so many lines, none is too long, and no name
// brings a control code into it.
func TestBounds(t *testing.T) {
	for _, conns := range []int{0, 3, 500} {
		snap := world(conns)
		for screen := range numScreens {
			for _, l := range []Look{{}, {Color: true}, {Color: true, Light: true}, {ASCII: true}} {
				for _, keys := range [][]string{nil, {"enter"}, {"?"}, {"/"}, {"/", "c"}, {"c"}, {"s"}, {"S"}, {"G"}, {"enter", "enter"}} {
					for _, size := range [][2]int{{0, 0}, {1, 1}, {20, 5}, {39, 30}, {40, 10}, {41, 11}, {60, 15}, {80, 24}, {81, 25}, {133, 33}, {300, 12}} {
						s := opened(snap, screen, keys...)
						text := Draw(s, snap, size[0], size[1], l)
						lines := strings.Split(text, "\n")
						where := fmt.Sprintf("%d connections, screen %d, keys %q, %dx%d, %+v", conns, screen, keys, size[0], size[1], l)
						if size[0] >= leastWidth && size[1] >= leastHeight && len(lines) != size[1] || len(lines) > max(size[1], 1) {
							t.Fatalf("%s: %d lines", where, len(lines))
						}
						for _, line := range lines {
							if n := ansi.StringWidth(line); n > max(size[0], 1) {
								t.Fatalf("%s: a line of %d cells: %q", where, n, line)
							}
							for _, r := range sgr.ReplaceAllString(line, "") {
								if r < ' ' || r == 0x7f || r == 0x202e || l.ASCII && r > 0x7e {
									t.Fatalf("%s: %q in %q", where, r, line)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestNoColor: without colours no colour is written, and what colours say is said in words.
func TestNoColor(t *testing.T) {
	text := Draw(NewState(Services, "", "", false), world(500), 80, 24, Look{})
	for _, code := range sgr.FindAllString(text, -1) {
		if code != "\x1b[1m" && code != "\x1b[7m" && code != "\x1b[m" {
			t.Errorf("%q is a colour", code)
		}
	}
	for _, word := range []string{"BAD peer-slow", "WARN app-slow", ">"} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not there:\n%s", word, text)
		}
	}
}

// TestPlain: the same tables as lines, nothing cut.
func TestPlain(t *testing.T) {
	for screen, name := range Screens {
		var b strings.Builder
		if err := Plain(&b, NewState(Screen(screen), "", "", false), world(12)); err != nil {
			t.Fatal(err)
		}
		golden(t, "plain-"+name, strings.TrimRight(b.String(), "\n"))
		if strings.ContainsAny(b.String(), "\x1b\a\r…") {
			t.Errorf("%s: control codes, or something is cut: %q", name, b.String())
		}
	}
}
