// SPDX-License-Identifier: Apache-2.0

package superping

import (
	"seine/internal/lab"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		for _, n := range []lab.Network{lab.Raw4, lab.Ping6} {
			x, err := lab.StartEcho(w, "client", "ping", lab.Echo{Network: n, Addr: w.Addr("server", n), Count: 5, Ident: 28121})
			if err != nil {
				return err
			}
			if _, err := x.Run(); err != nil {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ping4", Hosts: lab.TwoHosts, Run: echoes("server", lab.Ping4)},
	{Name: "ping6", Hosts: lab.TwoHosts, Run: echoes("server", lab.Ping6)},
}

// echoes makes a case of echoes. Each has a row, with a shorter time than its
// sender measured.
func echoes(to string, n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		return seen(x, lab.Echo{Network: n, Addr: x.World.Addr(to, n), Count: 23, Ident: 4711})
	}
}

func seen(x *trial.Trial, e lab.Echo) error {
	p, err := lab.StartEcho(x.World, x.World.Hosts()[0], "pinger", e)
	if err != nil {
		return err
	}
	rows, r, err := trial.RowsOf(x, e.Count, p.Run)
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), e.Count))
	for i, got := range rows {
		if i >= e.Count {
			break
		}
		x.Want(got, "pid", p.PID)
		x.Want(got, "comm", p.Comm)
		x.Want(got, "netns", p.Netns)
		x.Want(got, "raddr", e.Addr)
		x.Want(got, "ident", r.Ident)
		x.Want(got, "seq", i+1)
		if rtt := int64(got.Get("rtt_us").N); rtt <= 0 || rtt >= r.NS[i] {
			x.Errorf("echo %d took %d ns, its sender measured %d", i+1, rtt, r.NS[i])
		}
	}
	if n := x.Report.Losses[tool.LossOwner]; n != 0 {
		x.Errorf("%d unknown owners, want none", n)
	}
	return nil
}
