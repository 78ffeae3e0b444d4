// SPDX-License-Identifier: Apache-2.0

package tcpstates

import (
	"time"

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
			lab.Sessions{Send: 1000, Recv: 5000, ClientComm: "browser", ServerComm: "web"},
			lab.Sessions{Send: 100, Recv: 100, Network: lab.TCP6, Close: lab.ByReset, ClientComm: "prober", ServerComm: "web"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
}

// A change of state, from one to another.
type change struct{ from, to string }

var (
	active  = []change{{"CLOSE", "SYN_SENT"}, {"SYN_SENT", "ESTABLISHED"}}
	passive = []change{{"LISTEN", "SYN_RECV"}, {"SYN_RECV", "ESTABLISHED"}}
	first   = []change{{"ESTABLISHED", "FIN_WAIT1"}, {"FIN_WAIT1", "FIN_WAIT2"}, {"FIN_WAIT2", "CLOSE"}}
	second  = []change{{"ESTABLISHED", "CLOSE_WAIT"}, {"CLOSE_WAIT", "LAST_ACK"}, {"LAST_ACK", "CLOSE"}}
	cut     = []change{{"ESTABLISHED", "CLOSE"}}
)

// closes is the final changes of both sides for each way to close.
var closes = map[lab.Closer][2][]change{
	lab.ByClient: {first, second},
	lab.ByServer: {second, first},
	lab.ByReset:  {cut, cut},
}

func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error { return seen(x, s) }
}

// seen makes sessions that take a while and checks every change on both sides.
func seen(x *trial.Trial, s lab.Sessions) error {
	s.Think = 3 * time.Millisecond
	t, err := lab.StartTCP(x.World, s)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	res, err := t.Run()
	if err != nil {
		return err
	}
	c := closes[s.Close]
	wants := map[bool][]change{true: append(active[:2:2], c[0]...), false: append(passive[:2:2], c[1]...)}
	n := s.Count*(len(wants[true])+len(wants[false])) + 1
	if err := x.World.Closed(); err != nil {
		return err
	}
	x.Await(n)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	count := map[bool]map[change]int{true: {}, false: {}}
	for _, r := range rows {
		one(x, t, res, r, count)
	}
	count[false][change{"LISTEN", "SYN_RECV"}] -= count[false][thrown]
	x.Fail(trial.RowCount(len(rows), n+2*doubles(rows)))
	for client, list := range wants {
		for _, w := range list {
			got := count[client][w]
			x.Fail(trial.Fewer(got, s.Count, "%d changes %v (client: %v), want %d", got, w, client, s.Count))
		}
	}
	x.NoneLost(tool.LossOwner)
	return nil
}

// thrown is the end of a surplus socket: two processors may complete one
// handshake, and the kernel discards the second child.
var thrown = change{"SYN_RECV", "CLOSE"}

// doubles is the number of such sockets. Each has two changes.
func doubles(rows []*row.Row) (n int) {
	for _, r := range rows {
		if changed(r) == thrown {
			n++
		}
	}
	return n
}

func changed(r *row.Row) change {
	return change{trial.Value(r.Get("oldstate")), trial.Value(r.Get("newstate"))}
}

// one checks a row and counts it.
func one(x *trial.Trial, t *lab.TCP, res lab.TCPResult, r *row.Row, count map[bool]map[change]int) {
	c := changed(r)
	client := r.Get("rport").N == uint64(t.Port)
	count[client][c]++
	p := t.Server
	if client {
		p = t.Client
	}
	x.Want(r, "pid", p.PID)
	x.Want(r, "comm", p.Comm)
	if c == (change{"LISTEN", "CLOSE"}) {
		return
	}
	if !client {
		x.Want(r, "lport", t.Port)
	}
	spent := r.Get("duration_ms")
	switch c.from {
	case "CLOSE", "LISTEN":
		x.Want(r, "duration_ms", "-")
	case "ESTABLISHED":
		// At least as long as the slower side took, and at most as long
		// as the whole session.
		if ns := int64(spent.N); client && (ns < int64(t.Sessions.Think) || ns > longest(res)) {
			x.Errorf("%d ns in ESTABLISHED, want %d to %d", ns, t.Sessions.Think, longest(res))
		}
	default:
		if spent.Kind == row.Null {
			x.Errorf("no duration_ms in %s", trial.Dump(r))
		}
	}
}

func longest(res lab.TCPResult) (ns int64) {
	for _, s := range res.Client.Sessions {
		ns = max(ns, s.NS)
	}
	return ns
}
