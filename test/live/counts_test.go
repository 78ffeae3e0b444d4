// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

const bodySends = "live-sends"

func init() { lab.Register(bodySends, sends) }

// sendsArg describes sends: Threads concurrently open Sockets one after the other,
// each with a port of its own, and send Each messages of at least Size bytes. They
// pause after a number of sockets.
type sendsArg struct {
	Threads, Sockets, Each, Size int
	Batch                        int
	Pause                        time.Duration
}

func (a sendsArg) calls() uint64 { return uint64(a.Threads * a.Sockets * a.Each) }

func sends(c *lab.Child) error {
	var a sendsArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	sink, port, err := lab.Listen(lab.UDP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	defer lab.Close(sink)
	errs := make([]error, a.Threads)
	var wg sync.WaitGroup
	for i := range a.Threads {
		wg.Go(func() { errs[i] = a.send(port) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return c.Report(true)
}

func (a sendsArg) send(port int) error {
	b := make([]byte, a.Size+a.Each)
	for i := range a.Sockets {
		fd, err := lab.Connect(lab.UDP4, fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			return err
		}
		for n := range a.Each {
			if _, err := unix.Write(fd, b[:a.Size+n]); err != nil {
				return err
			}
		}
		lab.Close(fd)
		if a.Batch > 0 && i%a.Batch == a.Batch-1 {
			time.Sleep(a.Pause)
		}
	}
	return nil
}

// sent runs a tool over a and returns its rows.
func sent(t *testing.T, name string, a sendsArg, flags ...string) (rows []*row.Row, x *trial.Trial) {
	t.Helper()
	i := slices.IndexFunc(tools.All, func(tl *tool.Tool) bool { return tl.Name == name })
	tl := tools.All[i]
	var err error
	x, err = trial.RunCase(t.Context(), tl, trial.Case{Run: func(x *trial.Trial) error {
		p, err := x.World.Start("", "sender", bodySends, a)
		if err != nil {
			return err
		}
		var ready bool
		if err := p.Expect(&ready); err != nil {
			return err
		}
		if err := x.Attach(append(flags, "--comm=sender")...); err != nil {
			return err
		}
		if err := p.Tell("go"); err != nil {
			return err
		}
		if err := p.Expect(&ready); err != nil {
			return err
		}
		rows, err = x.Detach()
		return err
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return rows, x
}

// TestIdleKeys: new keys come all the time, far more than fit into the map at
// once, with short intervals. Idle keys make room, and each call is shown or
// counted as lost.
func TestIdleKeys(t *testing.T) {
	a := sendsArg{Threads: 1, Sockets: 2003, Each: 3, Size: 10, Batch: 20, Pause: 60 * time.Millisecond}
	rows, x := sent(t, "socketio", a, "-i50ms", "--memory=100k", "--by=lport,dir")
	var shown uint64
	keys := map[uint64]bool{}
	for _, r := range rows {
		n := r.Get("count").N
		if shown += n; n == 0 {
			t.Errorf("a row with count 0: %s", trial.Dump(r))
		}
		keys[r.Get("lport").N] = true
	}
	lost := x.Report.Losses[tool.LossMap]
	if shown+lost != a.calls() {
		t.Errorf("%d shown and %d lost of %d calls", shown, lost, a.calls())
	}
	// A few may be lost if a tick comes late on a busy machine.
	if len(keys) < a.Sockets*9/10 {
		t.Errorf("%d ports of %d in the rows", len(keys), a.Sockets)
	}
}

// TestTurns: counts go from one map to the other a hundred times a second under
// several busy threads. Nothing is counted twice or lost, no row is empty, and
// every histogram has a minimum and a maximum of its own interval.
func TestTurns(t *testing.T) {
	a := sendsArg{Threads: 4, Sockets: 23, Each: 1009, Size: 16}
	if lab.Emulated() { // where a call takes twenty times as long: there are as many turns
		a.Each = 53
	}
	for _, name := range []string{"socketio", "socksize"} {
		rows, x := sent(t, name, a, "-i10ms", "--by=dir")
		var shown uint64
		for _, r := range rows {
			c := r.Get("count")
			if name == "socketio" {
				shown += c.N
				continue
			}
			h := r.Get("bytes").Ref.(*kern.Hist)
			shown += h.Count
			b := h.Buckets()
			if h.Count == 0 {
				t.Errorf("socksize: a row with count 0")
			} else if h.Min < b[0].Lo || h.Min >= b[0].Hi || h.Max < b[len(b)-1].Lo || h.Max >= b[len(b)-1].Hi {
				t.Errorf("socksize: minimum %d and maximum %d, but buckets %v", h.Min, h.Max, b)
			}
		}
		// Kernels that preempt tasks inside of tracepoints skip program
		// runs, and count them.
		if lost := x.Report.Lost(); shown+lost != a.calls() || lost != x.Report.Missed {
			t.Errorf("%s: %d shown and %d lost, %d of them skipped by the kernel, of %d calls", name, shown, lost, x.Report.Missed, a.calls())
		}
		if len(rows) < 3 {
			t.Errorf("%s: %d outputs: too few to show anything", name, len(rows))
		}
	}
}

// TestLossesTold: losses are reported in the interval in which they happen, and
// the reports add up to the summary. A batch takes less than an interval, so
// that its keys do not fit, and the pause takes two.
func TestLossesTold(t *testing.T) {
	interval := 500 * time.Millisecond
	if lab.Emulated() {
		interval = time.Second
	}
	a := sendsArg{Threads: 1, Sockets: 1009, Each: 2, Size: 10, Batch: 300, Pause: 2 * interval}
	rows, x := sent(t, "socketio", a, fmt.Sprint("-i", interval), "--memory=64k", "--by=lport,dir")
	var shown, told uint64
	for _, r := range rows {
		shown += r.Get("count").N
	}
	for _, l := range x.Losses {
		if told += l.N; l.Kind != "map_full" {
			t.Errorf("%d of kind %s lost", l.N, l.Kind)
		}
	}
	if len(x.Losses) < 2 {
		t.Errorf("losses were told %d times, want several times", len(x.Losses))
	}
	if told == 0 || told != x.Report.Lost() || shown+told != a.calls() {
		t.Errorf("%d shown, %d told as lost, %d lost at the end, of %d calls", shown, told, x.Report.Lost(), a.calls())
	}
}
