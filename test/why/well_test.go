// SPDX-License-Identifier: Apache-2.0

package why

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/lab"
)

// A load is a healthy machine, even if some of its services wait on purpose.
type load struct {
	name  string
	heavy bool // for -all
	slow  bool // answers must be fast, which they are not on a busy machine: --slow is a second
	start starter
	class string // the load of a fault of this class; no finding of the class is allowed on this machine
}

// each is delays that are spread evenly over a range.
func each(n int, from, to time.Duration) (out []time.Duration) {
	for i := range n {
		out = append(out, from+(to-from)*time.Duration(i)/time.Duration(n-1))
	}
	return out
}

var loads = []load{
	{name: "an idle machine", heavy: true, start: func(*lab.World) (func() error, string, error) { return func() error { return nil }, "", nil }},
	{name: "talks, sessions and names", slow: true, start: mixed},
	{name: "a transfer of 200 MB", slow: true, heavy: true, start: talk(lab.Talk{Turns: 2, Answer: 100 << 20})},
	{name: "quick answers", slow: true, heavy: true, start: serving(service{}, users{Count: 20, Turns: 500})},
	{name: "connections that stay", slow: true, start: serving(service{}, users{Count: 2000, Turns: 1, Idle: 2 * time.Second})},
	{name: "ten thousand connections that stay", slow: true, heavy: true, start: serving(service{}, users{Count: 10_000, Turns: 1, Idle: 2 * time.Second})},
	{name: "many short sessions", slow: true, heavy: true, start: func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTCP(w, lab.Sessions{Count: 3000, Send: 100, Recv: 1000, Parallel: 4, Brief: true, ClientComm: "why-user", ServerComm: "why-web"})
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := t.Run(); return err }, "", nil
	}},
	{name: "a long poll", start: serving(service{Waits: []time.Duration{1500 * ms}}, users{Count: 30, Turns: 1})},
	{name: "a queue that is waited for", start: serving(service{Waits: each(30, 300*ms, 3*time.Second)}, users{Count: 30, Turns: 1})},
	{name: "fetches of a message broker", heavy: true, start: serving(service{Waits: []time.Duration{500 * ms}}, users{Count: 30, Turns: 2})},
	{name: "events that a server sends", heavy: true, start: serving(service{Events: 20, Every: 120 * ms}, users{Count: 25, Turns: 1, Events: 20})},
	{name: "notices that were asked for once", heavy: true, start: serving(service{Events: 10, Every: 150 * ms}, users{Count: 8, Turns: 1, Events: 10})},
	{name: "clients that ask seldom", heavy: true, slow: true, start: talk(lab.Talk{Turns: 25, Gap: 300 * ms})},
	{name: "much that is unread, and enough memory", heavy: true, slow: true, class: "memory-pressure", start: hoards(false)},
	{name: "datagrams that a processor keeps up with", heavy: true, class: "softirq-starved", start: pours(pour{flood: trickle, object: anyCPU})},
	{name: "datagrams that all processors receive", heavy: true, class: "cpu-imbalance", start: pours(pour{rounds: 10, flood: stream, spread: true, object: oneCPU})},
}

// mixed is processes that talk quickly, connect, look up names and end in an orderly way.
func mixed(w *lab.World) (func() error, string, error) {
	talks, err := lab.StartTalks(w, "why-user", "why-web", lab.Talk{Turns: 300}, lab.Talk{Turns: 30, Gap: 100 * ms}, lab.Talk{Turns: 20, Answer: 1 << 20}, lab.Talk{Turns: 4, Gap: time.Second})
	if err != nil {
		return nil, "", err
	}
	sessions, err := lab.StartTCP(w, lab.Sessions{Count: 200, Send: 100, Recv: 100, ClientComm: "why-user", ServerComm: "why-web"})
	if err != nil {
		return nil, "", err
	}
	lookups, object, err := names(lab.DNS{}, "nx-%d.example.", 8)(w)
	return func() error {
		_, err := talks.Run()
		_, other := sessions.Run()
		return errors.Join(err, other, lookups())
	}, object, err
}

// TestWell: healthy loads have no findings.
func TestWell(t *testing.T) {
	for i, l := range loads {
		if l.heavy && !*all {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			x := (&fault{start: l.start, class: l.class, shared: l.class != ""}).make(t)
			args := []string{"why", "-o", "json", "-d", "120s", "-vv"}
			if l.slow {
				args = append(args, "--slow", "1s")
			}
			out, said, code := seine(t, x.begin, args...)
			if code != 0 {
				t.Errorf("exit code %d: %s", code, said)
			}
			told := parse(t, out)
			if found := ours(told, x); len(found) > 0 {
				t.Errorf("nothing is wrong, found:\n%s%s%s", list(found), out, said)
			}
			if l.class != "" && slices.ContainsFunc(told, func(f *finding) bool { return f.Class == l.class }) {
				t.Errorf("there is no %s:\n%s%s", l.class, out, said)
			}
			if !strings.Contains(said, "29 rules were checked") {
				t.Errorf("not every rule was checked:\n%s", said)
			}
			t.Attr(fmt.Sprintf("load%02d", i+1), l.name)
		})
	}
}
