// SPDX-License-Identifier: Apache-2.0

package tcpstates

import (
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "server-closes", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Close: lab.ByServer})},
		{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 1, Recv: 1, Close: lab.ByReset})},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "uring", Run: uring},
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
		{Name: "listener", Run: listener},
		{Name: "self", Run: self},
		{Name: "again", Run: again},
	}
}

// mptcp: each change is one row, although the connection has two sockets.
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

// older: a connection that was established before the tool has a process, but
// no time in its first state.
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

// listener: the start and the end of a listener. The filter by port leaves out
// the clients.
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

// self: a socket that connects to itself enters SYN_RECV, but not from LISTEN.
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

// again: a socket that connects again has no port until one is chosen.
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

// connects makes the attempts. Their process must have n rows.
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
