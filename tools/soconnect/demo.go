// SPDX-License-Identifier: Apache-2.0

package soconnect

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

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

// outcomes: each connect has its result and its latency.
func outcomes(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	out, rows, err := attempts(x, keep(all, func(a lab.Attempt) bool {
		return a.Network.Family() != unix.AF_UNIX && a.Want != unix.ETIMEDOUT
	}))
	if err != nil {
		return err
	}
	for i, o := range out {
		ended(x, rows[i], o, o.Errno, o.NS)
		x.Want(rows[i], "via", "syscall")
	}
	return nil
}

// keep is the attempts that pass a test.
func keep(all []lab.Attempt, pass func(lab.Attempt) bool) (out []lab.Attempt) {
	for _, a := range all {
		if pass(a) {
			out = append(out, a)
		}
	}
	return out
}

// attempts makes them one after the other and returns their rows, which come in
// that order.
func attempts(x *trial.Trial, list []lab.Attempt, flags ...string) ([]lab.Outcome, []*row.Row, error) {
	c, err := lab.StartConnects(x.World, "", "connects", list...)
	if err != nil {
		return nil, nil, err
	}
	if err := x.Attach(flags...); err != nil {
		return nil, nil, err
	}
	out, err := c.Run()
	if err != nil {
		return nil, nil, err
	}
	x.Await(len(list))
	rows, err := x.Detach()
	if err != nil {
		return nil, nil, err
	}
	if len(rows) != len(list) {
		for _, r := range rows {
			x.Errorf("row: %s", trial.Dump(r))
		}
		return nil, nil, fmt.Errorf("%d rows of %d connects", len(rows), len(list))
	}
	for _, r := range rows {
		x.Want(r, "pid", c.PID)
		x.Want(r, "comm", c.Comm)
		x.Want(r, "netns", c.Netns)
	}
	x.NoneLost()
	return out, rows, nil
}

// ended checks a row: the address, the result, and a latency within the
// process's own measurement.
func ended(x *trial.Trial, r *row.Row, o lab.Outcome, errno syscall.Errno, ns int64) {
	a := o.Attempt
	if a.Network.Family() == unix.AF_UNIX {
		x.Want(r, "raddr", a.Addr)
		x.Want(r, "rport", "-")
	} else if to, err := netip.ParseAddrPort(a.Addr); err != nil {
		x.Errorf("%v", err)
	} else {
		x.Want(r, "raddr", to.Addr())
		x.Want(r, "rport", to.Port())
	}
	x.Want(r, "family", kern.Family(a.Network.Family()))
	wantErrno(x, r, errno)
	if errno == 0 && o.Port > 0 {
		x.Want(r, "lport", o.Port)
	}
	if c := r.Get("latency_us"); c.Kind == row.Null || c.N == 0 || int64(c.N) > ns {
		x.Errorf("latency %s, the stopwatch says %v, in %s", trial.Value(c), time.Duration(ns), trial.Dump(r))
	}
}

func wantErrno(x *trial.Trial, r *row.Row, errno syscall.Errno) {
	if errno == 0 {
		x.Want(r, "errno", "-")
		x.Want(r, "result", "Success")
		return
	}
	x.Want(r, "errno", kern.ErrnoName(int(errno)))
}
