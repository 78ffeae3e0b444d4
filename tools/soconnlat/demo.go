// SPDX-License-Identifier: Apache-2.0

package soconnlat

import (
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run:   func(w *lab.World) error { return lab.RunOutcomes(w, "browser", "servers") },
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "outcomes", Hosts: lab.TwoHosts, Run: outcomes},
}

// sum is the number of connects and their total time.
type sum struct{ count, us uint64 }

// metrics adds up rows by metric.
func metrics(x *trial.Trial, rows []*row.Row) map[string]sum {
	out := map[string]sum{}
	for _, r := range rows {
		h, ok := r.Get("latency_us").Ref.(*kern.Hist)
		if !ok {
			x.Errorf("no histogram in %s", trial.Dump(r))
			continue
		}
		m := r.Get("metric").S
		out[m] = sum{out[m].count + h.Count, out[m].us + h.Sum}
	}
	x.NoneLost()
	return out
}

// check compares with the expected metrics. Sums are below the workload's own
// measurement, which runs from before the call until the result is known.
func check(x *trial.Trial, got, want map[string]sum) {
	for m, w := range want {
		if g := got[m]; g.count != w.count || g.us > w.us {
			x.Errorf("%s: %d in %d us, want %d within %d us", m, g.count, g.us, w.count, w.us)
		}
	}
	for m, g := range got {
		if want[m].count == 0 {
			x.Errorf("%s: %d, want none", m, g.count)
		}
	}
}

// expect is the expected metrics of outcomes. The wait of a blocking connect
// ends when the call returns. The other connections are never used.
func expect(out []lab.Outcome) map[string]sum {
	want := map[string]sum{}
	add := func(m string, ns int64) {
		want[m] = sum{want[m].count + 1, want[m].us + uint64(ns)/1000}
	}
	for _, o := range out {
		switch tcp := o.Attempt.Network != lab.UDP4 && o.Attempt.Network != lab.UDP6; {
		case o.Errno != 0:
			add("failed", o.NS)
		case tcp && o.Attempt.Mode == lab.Blocking:
			add("wait", o.NS)
			fallthrough
		default:
			add("connect", o.NS)
		}
	}
	return want
}

// attempts makes the connects while the tool is attached.
func attempts(x *trial.Trial, list []lab.Attempt, flags ...string) ([]lab.Outcome, []*row.Row, error) {
	c, err := lab.StartConnects(x.World, "", "connects", list...)
	if err != nil {
		return nil, nil, err
	}
	var out []lab.Outcome
	rows, err := x.Rows(func() (err error) { out, err = c.Run(); return err }, flags...)
	return out, rows, err
}

func inet(all []lab.Attempt, pass func(lab.Attempt) bool) []lab.Attempt {
	return slices.DeleteFunc(slices.Clone(all), func(a lab.Attempt) bool {
		return a.Network.Family() == unix.AF_UNIX || !pass(a)
	})
}

func quick(a lab.Attempt) bool { return a.Want != unix.ETIMEDOUT }

// outcomes: connects that succeed and fail, blocking and not, TCP and UDP.
func outcomes(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	out, rows, err := attempts(x, inet(all, quick), "--by=comm")
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "comm", "connects")
		x.Want(r, "pid", "-")
	}
	want := expect(out)
	if want["connect"].count != 6 || want["failed"].count != 16 || want["wait"].count != 2 {
		x.Errorf("the workload is not what it should be: %v", want)
	}
	check(x, metrics(x, rows), want)
	return nil
}
