// SPDX-License-Identifier: Apache-2.0

package tcpstates

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

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

// Live is the live cases.
var Live = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
	{Name: "server-closes", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Close: lab.ByServer})},
	{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 1, Recv: 1, Close: lab.ByReset})},
	{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
	{Name: "uring", Run: uring},
	{Name: "older", Hosts: lab.TwoHosts, Run: older},
	{Name: "listener", Run: listener},
	{Name: "self", Run: self},
	{Name: "again", Run: again},
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

// closes is the ends of both sides for each way to close.
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

// thrown is the end of a socket that nobody needs: two processors may complete one
// handshake, and the second child is thrown away.
var thrown = change{"SYN_RECV", "CLOSE"}

// doubles is how many such sockets there are. Each has two changes.
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
		// As long as the slower side took, and not longer than the whole session.
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

// mptcp: one row for each change, though the connection has two sockets.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 13, Send: 1000, Recv: 777, Network: lab.MPTCP4})
	if err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 131, t.Run)
	if err != nil {
		return err
	}
	socks := map[string]map[change]int{}
	for _, r := range rows {
		c := changed(r)
		key := fmt.Sprint(r.Get("pid").N, trial.Value(r.Get("lport")), trial.Value(r.Get("rport")))
		if c.from == "CLOSE" || c.from == "LISTEN" {
			continue // without its port
		}
		if socks[key] == nil {
			socks[key] = map[change]int{}
		}
		if socks[key][c]++; socks[key][c] > 1 {
			x.Errorf("%v twice on one socket: %s", c, trial.Dump(r))
		}
		p := t.Server
		if r.Get("rport").N == uint64(t.Port) {
			p = t.Client
		}
		x.Want(r, "pid", p.PID)
	}
	if len(socks) != 26 {
		x.Errorf("%d sockets, want 26", len(socks))
	}
	return nil
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return seen(x, lab.Sessions{Count: 13, Send: 100, Recv: 100, Uring: true})
}

// older: what was established before the tool has a process, and no time in
// the state that it leaves first.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 17, Send: 10, Recv: 10, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 17*6+1, t.Run)
	if err != nil {
		return err
	}
	n := 0
	for _, r := range rows {
		if r.Get("oldstate").S == "ESTABLISHED" {
			n++
			x.Want(r, "duration_ms", "-")
		}
		if pid := int(r.Get("pid").N); pid != t.Client.PID && pid != t.Server.PID {
			x.Errorf("pid %d is neither client nor server", pid)
		}
	}
	if len(rows) != 17*6+1 || n != 34 {
		x.Errorf("%d rows, %d of them from ESTABLISHED; want %d and 34", len(rows), n, 17*6+1)
	}
	return nil
}

// listener: the beginning and the end of one; the filter of a port keeps the
// clients out.
func listener(x *trial.Trial) error {
	if err := x.Attach("--lport=7001"); err != nil {
		return err
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 1, Port: 7001})
	if err != nil {
		return err
	}
	if _, err := t.Run(); err != nil {
		return err
	}
	if err := x.World.Closed(); err != nil {
		return err
	}
	x.Await(7)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 7+2*doubles(rows)); err != nil {
		return err
	}
	ends := 0
	for _, r := range rows {
		x.Want(r, "lport", 7001)
		x.Want(r, "pid", t.Server.PID)
		if r.Get("oldstate").S == "LISTEN" && r.Get("newstate").S == "CLOSE" {
			ends++
		}
	}
	x.Want(rows[0], "newstate", "LISTEN")
	if ends != 1 {
		x.Errorf("%d ends of the listener, want 1", ends)
	}
	return nil
}

// self: a socket that connects to itself comes to SYN_RECV, but not from LISTEN.
func self(x *trial.Trial) error {
	at := lab.TCP4.At(x.World.Addr("", lab.TCP4), 7001)
	rows, err := connects(x, 6, lab.Attempt{Network: lab.TCP4, From: at, Addr: at})
	if err != nil {
		return err
	}
	from := "CLOSE"
	for i, to := range []string{"SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT1", "CLOSING", "CLOSE"} {
		x.Want(rows[i], "oldstate", from)
		x.Want(rows[i], "newstate", to)
		from = to
	}
	return nil
}

// again: a socket that connects once more has no port until one is chosen.
func again(x *trial.Trial) error {
	a := lab.Attempt{Network: lab.TCP4, Addr: lab.TCP4.At(x.World.Addr("", lab.TCP4), 7001), Want: unix.ECONNREFUSED}
	b := a
	b.Again = true
	rows, err := connects(x, 4, a, b)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if i%2 == 0 {
			x.Want(r, "newstate", "SYN_SENT")
			x.Want(r, "lport", "-")
		} else if x.Want(r, "newstate", "CLOSE"); r.Get("lport").Kind == row.Null {
			x.Errorf("no lport in %s", trial.Dump(r))
		}
	}
	return nil
}

// connects makes the attempts, from which n rows of their process must come.
func connects(x *trial.Trial, n int, list ...lab.Attempt) ([]*row.Row, error) {
	c, err := lab.StartConnects(x.World, "", "lab-connects", list...)
	if err != nil {
		return nil, err
	}
	if err := x.Attach(fmt.Sprintf("--pid=%d", c.PID)); err != nil {
		return nil, err
	}
	if _, err := c.Run(); err != nil {
		return nil, err
	}
	return x.Exactly(n)
}
