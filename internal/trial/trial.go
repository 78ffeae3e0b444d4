// SPDX-License-Identifier: Apache-2.0

// Package trial runs a tool over known traffic and compares its rows with it: live
// tests, and the self-test of doctor.
package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
)

// A Workload is known traffic in private network namespaces.
type Workload struct {
	Hosts []string                 // of the world; nil: one
	Run   func(w *lab.World) error // returns when the traffic has ended
	Why   string                   // where there can be no demo: the reason
}

// A Case is known traffic and the rows that a tool must show for it. Live tests
// and doctor --selftest run cases.
type Case struct {
	Name  string
	Hosts []string // of the world; nil: one
	Run   func(*Trial) error
	Slow  bool // too long for doctor --selftest
	// Thread, if set, is the name of the thread of each child that makes the traffic.
	Thread string
}

// A Trial is one run of a case. The case starts everything that must run before
// the tool, calls Attach, makes its traffic, calls Detach, and compares.
type Trial struct {
	Ctx   context.Context
	World *lab.World
	Way   string // forced on every attach; empty: the best

	// Stalled, set before Attach, makes the reader stop at its first row until
	// Detach: the ring gets full.
	Stalled bool

	// Apart, set before Attach, gives the tool a process of its own even on an
	// emulated machine, where that is slow.
	Apart bool

	// Beside, set before Attach, names tools that run in the same engine.
	Beside []string

	Choices []Choice     // of the last attach, for reports
	Notes   []string     // of the last attach
	Report  *tool.Report // of the last detach
	Losses  []row.Loss   // as they were reported until then
	tool    *tool.Tool
	running *running
	failed  []error
	since   int // the last PID before the world
}

// Choice is the way that a point took.
type Choice struct{ Point, Way string }

type running struct {
	rows    collector
	events  bool // not counts
	limited bool // to the world
	began   time.Time
	place   place
	done    chan struct{}
	err     error
}

// collector keeps rows and signals when there are enough.
type collector struct {
	mu   sync.Mutex
	rows []*row.Row
	lost []row.Loss    // as it was reported while the tool ran
	more chan struct{} // holds a token when rows have come
}

func (c *collector) Row(r *row.Row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, r.Clone())
	return nil
}

func (c *collector) End(e row.End) error {
	c.mu.Lock()
	c.lost = append(c.lost, e.Losses...)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
	return nil
}

func (c *collector) all() []*row.Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows
}

// ErrSkip marks a case that cannot run here, with the reason.
var ErrSkip = errors.New("skipped")

// RunCase makes a world and runs c in it. The program must have called Main.
func RunCase(ctx context.Context, t *tool.Tool, c Case, way string) (*Trial, error) {
	return RunBeside(ctx, t, c, way, nil)
}

// RunBeside is RunCase with other tools in the same engine.
func RunBeside(ctx context.Context, t *tool.Tool, c Case, way string, beside []string) (*Trial, error) {
	since := lastPID()
	w, err := lab.NewWorld(lab.Options{Hosts: c.Hosts, Thread: c.Thread})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	x := &Trial{since: since, Ctx: ctx, World: w, Way: way, Beside: beside, tool: t}
	return x, x.run(c)
}

// run runs the case, ends the tool if it still runs, and returns the errors.
func (x *Trial) run(c Case) error {
	err := c.Run(x)
	if x.running != nil {
		_, e := x.Detach()
		x.Fail(e)
	}
	return verdict(x.failed, err)
}

// Errorf records an error and goes on.
func (x *Trial) Errorf(format string, args ...any) {
	x.failed = append(x.failed, fmt.Errorf(format, args...))
}

// Attach starts the tool with these flags, limited to the namespaces of the
// world, and returns when every point is in place.
func (x *Trial) Attach(flags ...string) error {
	if x.tool.Filters&tool.FilterNetns != 0 {
		for _, h := range x.World.Hosts() {
			flags = append(flags, fmt.Sprintf("--netns=%d", x.World.Netns(h)))
		}
	}
	err := x.AttachAll(flags...)
	if err == nil {
		x.running.limited = x.tool.Filters&tool.FilterNetns != 0
	}
	return err
}

// AttachAll is Attach without the limit to the world.
func (x *Trial) AttachAll(flags ...string) error {
	if x.Way != "" {
		flags = append(flags, "--way="+x.Way)
	}
	if x.tool.Once { // it walks when it is detached, not before the traffic, unless a flag says otherwise
		flags = append([]string{"--interval=1h"}, flags...)
	}
	if kit == nil {
		return errors.New("trial: this program does not call Main")
	}
	cfg, _, err := kit.Parse(x.tool, flags)
	if err != nil {
		return err
	}
	schemas, err := x.tool.Schemas(x.tool.Views(cfg))
	if err != nil {
		return err
	}
	p, a, err := startTrial(x.Ctx, schemas, apartOrder{Tool: x.tool.Name, Flags: flags, Stalled: x.Stalled, Beside: x.Beside}, x.Apart)
	if err != nil {
		return err
	}
	x.Choices, x.Notes = a.Choices, a.Notes
	r := &running{events: x.tool.Kind(cfg) == tool.Events, began: a.Began, place: p, done: make(chan struct{}), rows: collector{more: make(chan struct{}, 1)}}
	x.running = r
	go func() {
		defer close(r.done)
		x.Report, r.err = p.collect(&r.rows)
	}()
	return nil
}

// Few is the flag that limits the tool's maps to one entry each, or to a few.
func (x *Trial) Few() (string, error) {
	p, err := tool.Prepare(x.tool, x.tool.NewConfig(), tool.Options{})
	if err != nil {
		return "", err
	}
	return fmt.Sprint("--memory=", p.Least()+4096), nil // and a filter
}

// Detach ends the tool and returns its rows.
func (x *Trial) Detach() ([]*row.Row, error) {
	r := x.running
	x.running = nil
	r.place.stop()
	<-r.done
	rows := r.rows.all()
	x.Losses = r.rows.lost
	x.audit(rows, r)
	return rows, r.err
}

// Await returns when n rows have come, or after a timeout. Detach then returns
// the rows that there are.
func (x *Trial) Await(n int) { x.Until(func(rows []*row.Row) bool { return len(rows) >= n }) }

// Until is Await for rows that are enough.
func (x *Trial) Until(enough func(rows []*row.Row) bool) {
	late := time.After(patience)
	for !enough(x.running.rows.all()) {
		select {
		case <-x.running.rows.more:
		case <-late:
			return
		case <-x.running.done:
			return
		}
	}
}

// Exactly waits for n rows, ends the tool and returns its rows. There must be no
// others.
func (x *Trial) Exactly(n int) ([]*row.Row, error) {
	x.Await(n)
	rows, err := x.Detach()
	if err == nil {
		err = RowCount(len(rows), n)
	}
	return rows, err
}

// patience is the timeout for rows, which is long enough under emulation too.
const patience = 20 * time.Second

// Skip ends a case that cannot run here.
func Skip(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSkip, fmt.Sprintf(format, args...))
}

// Want records an error if a column of r does not hold want.
func (x *Trial) Want(r *row.Row, id string, want any) {
	c := r.Get(id)
	if c == nil {
		x.Errorf("no column %s", id)
		return
	}
	if got := Value(c); got != fmt.Sprint(want) {
		x.Errorf("%s is %s, want %v, in %s", id, got, want, Dump(r))
	}
}

// Value is a cell as text: absent is "-".
func Value(c *row.Cell) string {
	switch c.Kind {
	case row.Null:
		return "-"
	case row.Uint, row.Bool, row.Time:
		return fmt.Sprint(c.N)
	case row.Int:
		return fmt.Sprint(int64(c.N))
	case row.Addr:
		return c.IP().String()
	case row.Text:
		return c.S
	}
	return fmt.Sprintf("%v", c.Ref)
}

// Dump is a row for error messages.
func Dump(r *row.Row) string {
	var b strings.Builder
	for i := range r.Cells {
		if k := r.Cells[i].Kind; k != row.Null && k != row.Object {
			fmt.Fprintf(&b, "%s=%s ", r.Schema.Columns[i].ID, Value(&r.Cells[i]))
		}
	}
	return strings.TrimSpace(b.String())
}

// RowsOf attaches the tool, runs a workload of the lab, and returns the rows when n
// of them have come, with the report of the workload.
func RowsOf[T any](x *Trial, n int, run func() (T, error), flags ...string) (rows []*row.Row, said T, err error) {
	if err := x.Attach(flags...); err != nil {
		return nil, said, err
	}
	if said, err = run(); err != nil {
		return nil, said, err
	}
	x.Await(n)
	rows, err = x.Detach()
	return rows, said, err
}

// Rows attaches the tool, makes the traffic, and returns the rows.
func (x *Trial) Rows(traffic func() error, flags ...string) ([]*row.Row, error) {
	if err := x.Attach(flags...); err != nil {
		return nil, err
	}
	if err := traffic(); err != nil {
		return nil, err
	}
	return x.Detach()
}
