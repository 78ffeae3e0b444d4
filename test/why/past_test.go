// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"testing"
	"time"

	"seine/internal/lab"
)

// TestPast: a service that has become slower is named even if it is not slow, if the
// recording has its earlier times. A service that was as slow before is not.
func TestPast(t *testing.T) {
	const slow = "1s"
	for _, c := range []struct {
		name        string
		before, now time.Duration
		want        string
	}{
		{"a server that has become slower", 2 * ms, 300 * ms, "app-slow"},
		{"a server that is as slow as before", 300 * ms, 300 * ms, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			patient(t, w)
			dir, addr := t.TempDir(), lab.TCP4.At(w.Addr4("server"), 8080)
			serves := func(wait time.Duration) error {
				p, err := w.Start("server", "why-web", bodyServe, service{Addr: addr, Waits: []time.Duration{wait}})
				if err != nil {
					return err
				}
				defer p.Kill()
				var port int
				if err := p.Expect(&port); err != nil {
					return err
				}
				run, err := startUsers(w, "client", "why-user", users{Addr: addr, Count: 2, Turns: 20})
				if err != nil {
					return err
				}
				return run()
			}
			var since time.Time
			var took time.Duration // all turns before that, so none took longer
			_, said, code := seine(t, func() error {
				began := time.Now()
				if err := serves(c.before); err != nil {
					return err
				}
				took = time.Since(began)
				time.Sleep(1500 * ms) // until the rows of that second are recorded
				since = time.Now()
				return serves(c.now)
			}, "record", "flows -i 1", "counters", "--dir", dir) // counters: both ends are of this machine
			if code != 0 {
				t.Fatalf("record: exit code %d: %s", code, said)
			}
			out, said, _ := seine(t, nil, "why", "--from", dir, "-o", "json", "-vv", "--slow", slow)
			if found := ours(parse(t, out)); len(found) > 0 {
				t.Errorf("nothing is slow, found:\n%s%s", list(found), said)
			}
			out, said, _ = seine(t, nil, "why", "--from", dir, "--since", since.Format(time.RFC3339Nano), "-o", "json", "-vv", "--slow", slow)
			found := ours(parse(t, out))
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("nothing has changed, found:\n%s%s", list(found), said)
				}
				return
			}
			if len(found) == 0 || found[0].String() != c.want+" why-web :8080" {
				t.Fatalf("found\n%swant %s first:\n%s", list(found), c.want, said)
			}
			if e := found[0].Evidence[0]; e.What != "p99 of a turn before" || e.Value < 2 || e.Value > float64(took.Milliseconds()) {
				t.Errorf("evidence %+v, want what it was before: 2 ms or more, and less than %v", e, took)
			}
			t.Attr(fmt.Sprintf("fault%02d", len(faults)+1), fmt.Sprintf("%s | %s | %s | %s", c.name, c.want, found[0].Severity, found[0].Confidence))
		})
	}
}
