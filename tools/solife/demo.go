// SPDX-License-Identifier: Apache-2.0

package solife

import (
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w,
			lab.Sessions{Count: 2, Send: 1000, Recv: 123456, ClientComm: "browser", ServerComm: "web"},
			lab.Sessions{Count: 1, Send: 54321, Recv: 10, Network: lab.TCP6, ClientComm: "backup", ServerComm: "store"},
			lab.Sessions{Count: 2, Send: 100, Recv: 4000, Network: lab.Unix, Path: "@bus", ServerHost: "client", ClientComm: "app", ServerComm: "bus", Think: 3 * time.Millisecond}); err != nil {
			return err
		}
		o, err := lab.StartIO(w, "", "media", lab.Load{Network: lab.UDP4, Count: 17, Size: 512})
		if err != nil {
			return err
		}
		_, err = o.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "tcp", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777})},
	{Name: "unix", Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777, Network: lab.Unix, Path: "@solife"})},
}

// sessions makes a case of sessions. Each has a row at both ends.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, s)
		if err != nil {
			return err
		}
		if err := x.Attach("--buffer=16M"); err != nil { // they come faster than a busy machine reads
			return err
		}
		res, err := t.Run()
		if err != nil {
			return err
		}
		rows, err := seen(x, t)
		if err != nil {
			return err
		}
		times(x, t, res, rows)
		return nil
	}
}

// seen waits for both rows of all sessions of t and checks them.
func seen(x *trial.Trial, t *lab.TCP) ([]*row.Row, error) {
	x.Await(2 * t.Sessions.Count)
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	unseen := 0
	for _, c := range x.Choices {
		if t.Sessions.Hold && c.Point == "io" && (c.Way == "tp" || c.Way == "sys") {
			unseen = 1 // the server was already waiting in accept when the tool started
		}
	}
	var clients, servers int
	for _, r := range rows {
		p, tx, rx := t.Server, t.Sessions.Recv, t.Sessions.Send
		if int(r.Get("pid").N) == t.Client.PID {
			clients++
			p, tx, rx = t.Client, rx, tx
		} else {
			servers++
		}
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
		x.Want(r, "netns", p.Netns)
		x.WantSum(r, "tx_bytes", tx, max(1, tx))
		if r.Get("rx_bytes").N == 0 && unseen > 0 && p == t.Server {
			unseen--
		} else {
			x.WantSum(r, "rx_bytes", rx, max(1, rx))
		}
		x.Want(r, "type", "stream")
		ends := map[bool][2]any{true: {"raddr", "rport"}, false: {"laddr", "lport"}}[p == t.Client]
		if t.Sessions.Network == lab.Unix {
			x.Want(r, "proto", "unix")
			x.Want(r, ends[0].(string), t.Sessions.Path)
			continue
		}
		x.Want(r, ends[0].(string), x.World.Addr(t.Sessions.ServerHost, t.Sessions.Network))
		x.Want(r, ends[1].(string), t.Port)
	}
	n := t.Sessions.Count
	x.Fail(trial.Fewer(clients, n, "%d rows of the client, want %d", clients, n))
	x.Fail(trial.Fewer(servers, n, "%d rows of the server, want %d", servers, n))
	x.NoneLost()
	return rows, nil
}

// times compares the durations of sessions with the measurements of the
// processes.
func times(x *trial.Trial, t *lab.TCP, res lab.TCPResult, rows []*row.Row) {
	longest := map[uint64]int64{} // by the client's port, which UNIX sockets do not have
	for _, s := range res.Client.Sessions {
		longest[uint64(s.ClientPort)] = max(longest[uint64(s.ClientPort)], s.NS)
	}
	for _, r := range rows {
		if int(r.Get("pid").N) != t.Client.PID {
			continue
		}
		d := r.Get("duration_ms")
		if d.Kind == row.Null { // the kernel skipped the program that sees its start
			x.Fail(&trial.Missing{N: 1, Text: "no birth: " + trial.Dump(r)})
			continue
		}
		if most := longest[r.Get("lport").N]; int64(d.N) > most || d.N < uint64(t.Sessions.Think) {
			x.Errorf("a duration of less than %v, or of more than %d ns: %s", t.Sessions.Think, most, trial.Dump(r))
		}
	}
}
