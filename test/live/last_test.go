// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"seine/internal/lab"
	"seine/internal/tool"
	"seine/internal/trial"
)

const bodyLast = "live-last"

func init() { lab.Register(bodyLast, lastPair) }

// lastPair connects two sockets of one process and sends bytes each way. It closes
// them when it is told to.
func lastPair(c *lab.Child) error {
	var bytes int
	if err := c.Arg(&bytes); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	defer lab.Close(l)
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("talk"); err != nil {
		return err
	}
	client, err := lab.Connect(lab.TCP4, fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return err
	}
	server, err := lab.Accept(l)
	if err != nil {
		return err
	}
	for _, way := range [][2]int{{client, server}, {server, client}} {
		if err := lab.SendAll(way[0], make([]byte, bytes)); err != nil {
			return err
		}
		if err := lab.RecvAll(way[1], make([]byte, bytes)); err != nil {
			return err
		}
	}
	if err := c.Report(port); err != nil {
		return err
	}
	if err := c.Await("close"); err != nil {
		return err
	}
	if err := lab.Close(client); err != nil {
		return err
	}
	if err := lab.Close(server); err != nil {
		return err
	}
	return c.Report(true)
}

const lastBytes = 1009

// startLast starts the pair in a world of its own, and makes an engine for tools that
// look at it. When the run ends and the session waits for the first time, the pair closes
// and closed is called before the session goes on.
func startLast(t *testing.T, bytes int, closed func()) (p *lab.Proc, e *tool.Engine, netns string) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if p, err = w.Start(w.Hosts()[0], "pair", bodyLast, bytes); err != nil {
		t.Fatal(err)
	}
	var ready bool
	if err := p.Expect(&ready); err != nil {
		t.Fatal(err)
	}
	var closing sync.Once
	e, err = tool.NewEngine(tool.EngineOptions{Guard: func() {
		closing.Do(func() {
			if err := p.Call("close", &ready); err != nil {
				t.Error(err)
			}
			closed()
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return p, e, fmt.Sprintf("--netns=%d", w.Netns(w.Hosts()[0]))
}

// TestLastOutput: a connection that ends after the programs are detached and before the
// last walk is in the last output, as it was while the programs were attached.
func TestLastOutput(t *testing.T) {
	for _, run := range [][]string{{"flows", "--view=connections"}, {"flows"}, {"tcptop"}} {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			p, e, netns := startLast(t, lastBytes, func() {})
			r := start(t, e, run[0], append(run[1:], "--interval=10m", netns)...)
			var port int
			if err := p.Call("talk", &port); err != nil {
				t.Fatal(err)
			}
			rows, err := r.end()
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 2 {
				t.Fatalf("%d rows of the two sides of a connection", len(rows))
			}
			for _, r := range rows {
				if tx, rx := r.Get("tx_bytes").N, r.Get("rx_bytes").N; tx != lastBytes || rx != lastBytes {
					t.Errorf("sent %d and received %d bytes, want %d of each, in %s", tx, rx, lastBytes, trial.Dump(r))
				}
			}
		})
	}
}

// TestLastPending: pending operations are reported as they are at the end of a run, not
// after the programs that would see their end are detached.
func TestLastPending(t *testing.T) {
	var begun time.Time
	var lasted time.Duration
	p, e, netns := startLast(t, 0, func() {
		lasted = time.Since(begun)
		time.Sleep(200 * time.Millisecond) // so that a later look shows
	})
	r := start(t, e, "so1stbyte", "--events", netns)
	begun = time.Now()
	var port int
	if err := p.Call("talk", &port); err != nil {
		t.Fatal(err)
	}
	rows, err := r.end()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if age := time.Duration(r.Get("latency_us").N); age > lasted {
			t.Errorf("%v after it began, and it ended after %v, in %s", age, lasted, trial.Dump(r))
		}
	}
	if len(rows) == 0 || rows[0].Get("pending").N == 0 {
		t.Errorf("%d rows, and the first is not pending", len(rows))
	}
}
