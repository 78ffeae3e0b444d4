// SPDX-License-Identifier: Apache-2.0

package tcpaccept

import (
	"fmt"
	"time"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "uring", Run: uring},
		{Name: "late", Hosts: lab.TwoHosts, Run: late(lab.Late{Network: lab.TCP4, Backlog: 11})},
		{Name: "late-uring", Run: lateUring},
		{Name: "late-mptcp", Hosts: lab.TwoHosts, Run: lateMPTCP},
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
	}
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

// late: each of seven connections waits 100 ms, and the queue gets shorter by
// one each time.
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

// older: a connection that waited before the tool started has a row without the
// time.
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
