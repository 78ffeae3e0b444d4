// SPDX-License-Identifier: Apache-2.0

package tcpaccept

import (
	"time"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 3, Send: 10, Recv: 10, ClientComm: "browser", ServerComm: "web"}); err != nil {
			return err
		}
		_, err := keepWaiting(w, lab.Late{Network: lab.TCP6, Comm: "lazy", Backlog: 5}, 3)
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
}

func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		s.Backlog = 101
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
		if !s.Uring || !oldRing() {
			x.Await(s.Count)
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		if s.Uring && oldRing() && len(rows) == s.Count-1 {
			res.Client.Sessions = res.Client.Sessions[1:] // the first request was made before the tool started
		} else if err := trial.RowCount(len(rows), s.Count); err != nil {
			return err
		}
		for i, r := range rows {
			c := res.Client.Sessions[i]
			x.Want(r, "pid", t.Server.PID)
			x.Want(r, "comm", t.Server.Comm)
			x.Want(r, "laddr", c.Addr)
			x.Want(r, "lport", t.Port)
			x.Want(r, "rport", c.ClientPort)
			if i > 0 || s.Uring { // the first accept was waiting before the tool started
				x.Want(r, "backlog", "0/101")
			}
			if ns := int64(r.Get("queued_us").N); ns <= 0 || ns > c.NS {
				x.Errorf("%d ns in the queue, and the whole session took %d", ns, c.NS)
			}
		}
		x.NoneLost()
		return nil
	}
}

// oldRing reports whether io_uring requests are known only by their submission.
func oldRing() bool {
	k, err := probe.Running()
	return err == nil && probe.UringLayout("old")(k) == nil
}

// wait is how late the server is.
const wait = 100 * time.Millisecond

// keepWaiting makes n connections that are accepted late. It returns the
// longest time that they can have waited.
func keepWaiting(w *lab.World, l lab.Late, n int) (time.Duration, error) {
	s, err := lab.StartLate(w, l)
	if err != nil {
		return 0, err
	}
	return keepIn(w, s, l.Network, n)
}

func keepIn(w *lab.World, s *lab.Waiting, network lab.Network, n int) (time.Duration, error) {
	var list []lab.Attempt
	for range n {
		list = append(list, lab.Attempt{Name: "early", Network: network, Addr: s.Addr})
	}
	c, err := lab.StartConnects(w, "", "early", list...)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := c.Run(); err != nil {
		return 0, err
	}
	if err := s.Queued(n); err != nil {
		return 0, err
	}
	time.Sleep(wait)
	if err := s.Accept(n); err != nil {
		return 0, err
	}
	return time.Since(start), s.End()
}
