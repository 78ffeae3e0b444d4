// SPDX-License-Identifier: Apache-2.0

package tcplife

import (
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w,
			lab.Sessions{Count: 3, Send: 1000, Recv: 123456, ClientComm: "browser", ServerComm: "web"},
			lab.Sessions{Count: 2, Send: 54321, Recv: 10, Network: lab.TCP6, ClientComm: "backup", ServerComm: "store"},
			lab.Sessions{Count: 1, Send: 100, Recv: 100, Close: lab.ByReset, ClientComm: "prober", ServerComm: "web"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777, Network: lab.TCP6})},
}

// sessions makes a case of sessions. Each has a row at both ends.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		_, err := seen(x, s, nil)
		return err
	}
}

// seen makes the sessions and checks both rows of each.
func seen(x *trial.Trial, s lab.Sessions, also func(r *row.Row, client bool), flags ...string) (*lab.TCP, error) {
	t, err := lab.StartTCP(x.World, s)
	if err != nil {
		return nil, err
	}
	if err := x.Attach(flags...); err != nil {
		return nil, err
	}
	if _, err := t.Run(); err != nil {
		return nil, err
	}
	x.Await(2 * s.Count)
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	ends(x, t, rows, also)
	return t, nil
}

// ends checks that rows are both ends of all sessions of t.
func ends(x *trial.Trial, t *lab.TCP, rows []*row.Row, also func(r *row.Row, client bool)) {
	var clients, servers int
	for _, r := range rows {
		client := r.Get("rport").N == uint64(t.Port)
		p, tx, rx := t.Server, t.Sessions.Recv, t.Sessions.Send
		if client {
			clients++
			p, tx, rx = t.Client, rx, tx
		} else {
			servers++
			x.Want(r, "lport", t.Port)
		}
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
		x.Want(r, "tx_bytes", tx)
		x.Want(r, "rx_bytes", rx)
		if also != nil {
			also(r, client)
		}
	}
	n := t.Sessions.Count
	x.Fail(trial.Fewer(clients, n, "%d rows of the client, want %d", clients, n))
	x.Fail(trial.Fewer(servers, n, "%d rows of the server, want %d", servers, n))
	x.NoneLost()
	if n := x.Report.Losses[tool.LossOwner]; n != 0 {
		x.Errorf("%d unknown owners, want none", n)
	}
}
