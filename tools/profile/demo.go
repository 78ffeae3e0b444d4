// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error { return transfer(w, bulk(8<<30)) },
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "hot", Run: hot},
}

// near reports whether the number of samples agrees with perf's, which are taken at other
// times: within 15 per cent, or within half on an emulated machine. There a run of the
// program takes milliseconds, and the next sample is late. perf took least to most
// samples.
func near(samples, least, most uint64) error {
	off := 0.15
	if lab.Emulated() {
		off = 0.5
	}
	if float64(samples) < (1-off)*float64(least)-3 || float64(samples) > (1+off)*float64(most)+3 {
		return fmt.Errorf("%d samples, and by perf %d to %d", samples, least, most)
	}
	return nil
}

// rate is n samples a second, or fewer on an emulated machine, where the sampling
// itself would take much of the time.
func rate(hz int) int {
	if lab.Emulated() {
		return hz / 5
	}
	return hz
}

// most reports whether n is more than 90 per cent, or a third on an emulated
// machine. There the other threads of the process, system calls and interrupts take
// as long as the measured work, and longer on a busy host.
func most(n, all uint64) bool {
	if lab.Emulated() {
		return n*3 > all
	}
	return n*10 > all*9
}

// with adds up the samples whose stack in a column passes a test, and all
// samples.
func with(rows []*row.Row, column string, test func(*kern.Stack) bool) (n, all uint64) {
	for _, r := range rows {
		all += r.Get("count").N
		if st, ok := r.Get(column).Ref.(*kern.Stack); ok && test(st) {
			n += r.Get("count").N
		}
	}
	return n, all
}

// through tests for a function whose name has this suffix.
func through(function string) func(*kern.Stack) bool {
	return func(st *kern.Stack) bool {
		return slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return f.Sym == function || strings.HasSuffix(f.Sym, "."+function) })
	}
}

// sampled runs a body under the tool and returns its rows.
func sampled(x *trial.Trial, body string, want time.Duration, flags ...string) (rows []*row.Row, pid int, err error) {
	p, err := x.World.Start("", "burner", body, want)
	if err != nil {
		return nil, 0, err
	}
	var used time.Duration
	rows, err = x.Rows(func() error { return p.Call("go", &used) }, append(flags, fmt.Sprint("--pid=", p.PID))...)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
	}
	return rows, p.PID, p.Wait()
}

const second = time.Second

// hot: the hot function is in more than 90 per cent of the samples, and perf
// takes as many samples of the process.
func hot(x *trial.Trial) error {
	hz := rate(499)
	perf, err := lab.StartSamples(hz)
	if err != nil {
		return err
	}
	defer perf.Close()
	rows, pid, err := sampled(x, bodyBurn, second, fmt.Sprint("-F", hz))
	if err != nil {
		return err
	}
	want, err := perf.Count(pid, -1)
	if err != nil {
		return err
	}
	n, all := with(rows, "ustack", through("burnHere"))
	if !most(n, all) {
		x.Errorf("%d of %d samples are in the function that all the time is spent in", n, all)
	}
	if x.Fail(near(all, want, want)); want == 0 {
		x.Errorf("perf took no sample of a second")
	}
	var ns uint64
	for _, r := range rows {
		ns += r.Get("cpu_ms").N
	}
	if want := all * (uint64(second) / uint64(hz)); ns != want {
		x.Errorf("the samples stand for %d ns, want %d", ns, want)
	}
	return nil
}

func init() {
	lab.Register(bodyBurn, func(c *lab.Child) error { return busy(c, burnHere) })
}
