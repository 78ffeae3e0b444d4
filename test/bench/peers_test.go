// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestIsHook(t *testing.T) {
	for name, want := range map[string]bool{
		"anon_inode:bpf_link":           true, // 6.12
		"anon_inode:bpf-link":           true, // 5.10
		"anon_inode:bpf-raw-tracepoint": true, // before 5.7
		"anon_inode:[perf_event]":       true,
		"anon_inode:bpf-prog":           false, // loaded, not attached
		"anon_inode:bpf-map":            false,
		"anon_inode:[eventpoll]":        false,
		"/tmp/bpf_link":                 false,
	} {
		if got := isHook(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestRowsOf(t *testing.T) {
	text := "Attaching 3 probes...\nPID   COMM       LADDR\n\nTracing... Hit Ctrl-C to end.\n1 a 127.0.0.1\n22 b ::1\n"
	if got := rowsOf([]byte(text)); got != 2 {
		t.Errorf("got %d rows, want 2", got)
	}
}

// A program that ends before it has attached is an error with the program's
// output.
func TestRivalThatEnds(t *testing.T) {
	r := &rival{child: child{args: []string{"sh", "-c", "echo first >&2; echo no such probe >&2; exit 3"}}, limit: time.Minute}
	err := r.start()
	if err == nil || !strings.Contains(err.Error(), "it ended: no such probe") {
		t.Errorf("got %v, want that it ended, with its last line", err)
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Errorf("%s is left", r.file)
	}
}

// The wait for a program that never attaches ends at its limit.
func TestRivalThatNeverAttaches(t *testing.T) {
	r := &rival{child: child{args: []string{"sleep", "1000"}}, limit: 100 * time.Millisecond}
	if err := r.start(); err == nil || !strings.Contains(err.Error(), "not attached after 100ms") {
		t.Errorf("got %v, want that it is not attached", err)
	}
}

// A rival may close as many descriptors as it opens between two looks: it is attached then. Later a look that finds as many
// descriptors as the one before counts nothing.
func TestRivalThatReplaces(t *testing.T) {
	var found attachment
	counted := 0
	for _, hooks := range []int{0, 0, 1, 1} {
		found.look(7, func() int { counted++; return hooks })
		if found.hooks != hooks {
			t.Errorf("got %d hooks, want %d", found.hooks, hooks)
		}
	}
	if counted != 3 {
		t.Errorf("counted %d times, want 3", counted)
	}
	began := found.since
	found.look(8, func() int { return 2 })
	if found.hooks != 2 || !found.since.After(began) {
		t.Errorf("got %d hooks since %v, want 2, and later than %v", found.hooks, found.since, began)
	}
}

// A failed rival is a row with the reason. The others are beside ours, each
// with its own goal.
func TestContestFigures(t *testing.T) {
	c := &contest{tool: "tcpx", event: "session"}
	own := &rival{}
	theirs := []*rival{{suite: suites[0]}, {suite: suites[1]}, {suite: suites[2]}}
	got := c.figures(own, theirs, map[*rival][]taken{
		own:       {{start: 10, perEvent: 40}, {start: 20, perEvent: 40}},
		theirs[0]: {{start: 5, perEvent: 100}, {start: 5, perEvent: 100}},
		theirs[2]: {{start: 200, perEvent: 50}}, // one round
	}, map[*rival]error{theirs[1]: errors.New("no such probe")}, nil, nil)
	seen := map[string]string{}
	for _, f := range got {
		cells := f.cells()
		seen[f.What+" / "+f.Beside] = strings.Join(cells[5:], " ")
	}
	for what, want := range map[string]string{
		"tcpx: start-up / libbpf-tools":        "3.00  ",
		"tcpx: start-up / BCC":                 "0.05 ≤ 0.10× yes",
		"tcpx: BPF per session / libbpf-tools": "0.40 ≤ 0.50× yes",
		"tcpx: BPF per session / BCC":          "0.80  ",
		"tcpx / bpftrace":                      "  not measured: no such probe",
	} {
		if seen[what] != want {
			t.Errorf("%s: got %q, want %q", what, seen[what], want)
		}
	}
	if n := len(got); n != 2*4+1 {
		t.Errorf("got %d figures, want 9", n)
	}
}

// If no rival works, our figure is still there.
func TestContestAlone(t *testing.T) {
	c := &contest{tool: "tcpx", event: "drop"}
	own, their := &rival{}, &rival{suite: suites[2]}
	got := c.figures(own, []*rival{their}, map[*rival][]taken{own: {{start: 10, perEvent: 40}}}, map[*rival]error{their: errors.New("it shows nothing")}, nil, nil)
	if len(got) != 4+1 || got[2].What != "tcpx: BPF per drop" || median(got[2].Own) != 40 || got[2].Beside != "" {
		t.Errorf("got %+v, want four figures of ours and one with the reason", got)
	}
}
