// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/test/cases"
	"seine/tools"
)

// ten are the tools that one process runs together.
var ten = []string{
	"tcplife", "tcpretrans", "tcpdrop", "skbdrop", "soconnect", "gethostlatency", "tcpsynbl", "tcpstates", "udplife", "tcpaccept",
}

// TestBeside runs the first case of every tool with nine others in the same engine. The
// rows must be the same as those of the tool alone.
func TestBeside(t *testing.T) {
	if lab.Emulated() {
		t.Skip("ten tools at once take minutes where the machine is emulated")
	}
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			i := slices.IndexFunc(cases.All[tl.Name], func(c trial.Case) bool { return !c.Slow })
			if i < 0 {
				t.Skip("no case")
			}
			beside := slices.DeleteFunc(slices.Clone(ten), func(name string) bool { return name == tl.Name })[:9]
			until(t, func() (*trial.Trial, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				return trial.RunBeside(ctx, tl, cases.All[tl.Name][i], "", beside)
			})
		})
	}
}

// engineRun is a tool in an engine, with its rows.
type engineRun struct {
	*tool.Session
	rows   gathered
	stop   context.CancelFunc
	done   chan struct{}
	report *tool.Report
	err    error
}

type gathered struct {
	mu   sync.Mutex
	rows []*row.Row
}

func (g *gathered) Row(r *row.Row) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rows = append(g.rows, r.Clone())
	return nil
}

func (g *gathered) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.rows)
}

func (g *gathered) End(row.End) error { return nil }

// start runs a tool in e.
func start(t *testing.T, e *tool.Engine, name string, flags ...string) *engineRun {
	t.Helper()
	r, err := begin(t.Context(), e, name, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func begin(ctx context.Context, e *tool.Engine, name string, flags ...string) (*engineRun, error) {
	tl := tools.All[slices.IndexFunc(tools.All, func(t *tool.Tool) bool { return t.Name == name })]
	cfg, o, err := cli.Parse(tl, flags)
	if err != nil {
		return nil, err
	}
	p, err := tool.Prepare(tl, cfg, o)
	if err != nil {
		return nil, err
	}
	r := &engineRun{done: make(chan struct{})}
	if r.Session, err = e.Attach(p); err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		r.report, r.err = r.Run(ctx, &r.rows)
	}()
	return r, nil
}

// await returns when it has n rows, or after a timeout.
func (r *engineRun) await(n int) {
	for late := time.Now().Add(20 * time.Second); r.rows.len() < n && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
}

// end ends it and returns its rows.
func (r *engineRun) end() ([]*row.Row, error) {
	r.stop()
	<-r.done
	return r.rows.rows, r.err
}

// worldOfTools is a world, an engine for several tools, and the flag that limits them to
// that world.
func worldOfTools(t *testing.T) (w *lab.World, e *tool.Engine, netns string) {
	t.Helper()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if e, err = tool.NewEngine(tool.EngineOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return w, e, fmt.Sprintf("--netns=%d", w.Netns(w.Hosts()[0]))
}

// TestAddRemove: tools come and go while connections are made. The tool that stays
// sees each connection once. Rows of the others stay theirs.
func TestAddRemove(t *testing.T) {
	w, e, netns := worldOfTools(t)
	life := start(t, e, "tcplife", netns)
	var over atomic.Bool
	var wg sync.WaitGroup
	rounds := make([]int, 2)
	others, least := [][]string{{"tcpstates", "gethostlatency"}, {"tcpdrop", "soconnect", "tcptop"}}, 2
	if lab.Emulated() { // it takes a minute to load them all
		others, least = [][]string{{"tcpstates"}}, 1
	}
	for i, names := range others {
		wg.Go(func() {
			for rounds[i] = 0; !over.Load() || rounds[i] < least; rounds[i]++ {
				for _, name := range names {
					r, err := begin(t.Context(), e, name, netns)
					if err != nil {
						t.Error(err)
						return
					}
					r.Stats()
					if _, err := r.end(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					for _, one := range r.rows.rows {
						if one.Schema.Tool != name {
							t.Errorf("%s got a row of %s", name, one.Schema.Tool)
						}
					}
				}
			}
		})
	}
	sent := 0
	for began := time.Now(); sent == 0 || time.Since(began) < 2*time.Second; {
		if err := lab.RunTCP(w, lab.Sessions{Count: 101, Send: 100, Recv: 100}); err != nil {
			t.Fatal(err)
		}
		sent += 101
	}
	over.Store(true)
	wg.Wait()
	stats := life.Stats()
	life.await(2 * sent)
	rows, err := life.end()
	if err != nil {
		t.Fatal(err)
	}
	if lost := life.report.Lost() - life.report.Losses[tool.LossOwner]; len(rows) != 2*sent || lost != 0 {
		t.Errorf("%d rows and %d lost of %d sessions with two ends", len(rows), lost, sent)
	}
	if stats.Rows > uint64(len(rows)) || stats.Events > uint64(len(rows)) {
		t.Errorf("%d rows of %d events before the end, %d at the end", stats.Rows, stats.Events, len(rows))
	}
	if n := len(e.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	t.Logf("%d sessions while tools came and went %v times", sent, rounds)
}
