// SPDX-License-Identifier: Apache-2.0

package tcpconnect

import (
	"slices"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 3, Send: 10, Recv: 10, ClientComm: "browser", ServerComm: "web"}); err != nil {
			return err
		}
		_, list, err := lab.Outcomes(w, "targets")
		if err != nil {
			return err
		}
		p, err := lab.StartConnects(w, "", "prober", tcpOnly(list, true)...)
		if err != nil {
			return err
		}
		_, err = p.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
}

// tcpOnly keeps the attempts that this tool shows, without those that take long.
func tcpOnly(list []lab.Attempt, quick bool) []lab.Attempt {
	return slices.DeleteFunc(slices.Clone(list), func(a lab.Attempt) bool {
		return a.Network != lab.TCP4 && a.Network != lab.TCP6 || quick && a.Hasty
	})
}

func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, s)
		if err != nil {
			return err
		}
		rows, res, err := trial.RowsOf(x, s.Count, t.Run)
		if err != nil {
			return err
		}
		if err := trial.RowCount(len(rows), s.Count); err != nil {
			return err
		}
		for i, r := range rows {
			c := res.Client.Sessions[i]
			x.Want(r, "pid", t.Client.PID)
			x.Want(r, "comm", t.Client.Comm)
			x.Want(r, "raddr", c.Addr)
			x.Want(r, "rport", t.Port)
			x.Want(r, "lport", c.ClientPort)
			x.Want(r, "result", "Success")
			x.Want(r, "proto", "tcp")
			if ns := int64(r.Get("latency_us").N); ns <= 0 || ns > c.ConnectNS {
				x.Errorf("%d ns, and the call took %d", ns, c.ConnectNS)
			}
		}
		x.NoneLost()
		return nil
	}
}
