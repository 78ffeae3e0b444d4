// SPDX-License-Identifier: Apache-2.0

package tcpaccept

import (
	"fmt"
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

// Live is the live cases.
var Live = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
	{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
	{Name: "uring", Run: uring},
	{Name: "late", Hosts: lab.TwoHosts, Run: late(lab.Late{Network: lab.TCP4, Backlog: 11})},
	{Name: "late-uring", Run: lateUring},
	{Name: "late-mptcp", Hosts: lab.TwoHosts, Run: lateMPTCP},
	{Name: "older", Hosts: lab.TwoHosts, Run: older},
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
			res.Client.Sessions = res.Client.Sessions[1:] // the first request was there before the tool
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
			if i > 0 || s.Uring { // the first accept was waiting before the tool came
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

// oldRing says that requests of io_uring are known by their submission only.
func oldRing() bool {
	k, err := probe.Running()
	return err == nil && probe.UringLayout("old")(k) == nil
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Network: lab.MPTCP4})(x)
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Uring: true})(x)
}

// wait is how late the server is.
const wait = 100 * time.Millisecond

// keepWaiting makes n connections that are accepted late; it says how long
// they can have waited at the most.
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

// late: each of seven waits 100 ms, and the queue gets shorter by one each time.
func late(l lab.Late) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		s, err := lab.StartLate(x.World, l)
		if err != nil {
			return err
		}
		if err := x.Attach("-P", fmt.Sprint(s.Port)); err != nil {
			return err
		}
		most, err := keepIn(x.World, s, l.Network, 7)
		if err != nil {
			return err
		}
		rows, err := x.Exactly(7)
		if err != nil {
			return err
		}
		for i, r := range rows {
			x.Want(r, "pid", s.PID)
			x.Want(r, "backlog", fmt.Sprintf("%d/%d", 6-i, l.Backlog))
			if ns := time.Duration(r.Get("queued_us").N); ns < wait || ns > most {
				x.Errorf("%v in the queue, want %v to %v", ns, wait, most)
			}
		}
		return nil
	}
}

func lateUring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return late(lab.Late{Network: lab.TCP4, Backlog: 11, Uring: true})(x)
}

func lateMPTCP(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return late(lab.Late{Network: lab.MPTCP4, Backlog: 11})(x)
}

// older: what waits since before the tool has a row without the time.
func older(x *trial.Trial) error {
	s, err := lab.StartLate(x.World, lab.Late{Network: lab.TCP4})
	if err != nil {
		return err
	}
	c, err := lab.StartConnects(x.World, "", "early", lab.Attempt{Name: "early", Network: lab.TCP4, Addr: s.Addr})
	if err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	if err := s.Queued(1); err != nil {
		return err
	}
	rows, err := x.Rows(func() error { return s.Accept(1) })
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	x.Want(rows[0], "queued_us", "-")
	x.Want(rows[0], "pid", s.PID)
	return nil
}
