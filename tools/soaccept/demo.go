// SPDX-License-Identifier: Apache-2.0

package soaccept

import (
	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w,
			lab.Sessions{Count: 3, Send: 100, Recv: 1000, ServerComm: "web"},
			lab.Sessions{Count: 2, Send: 100, Recv: 1000, Network: lab.TCP6, ServerComm: "store"}); err != nil {
			return err
		}
		a, err := lab.StartAccepts(w, "server", "clumsy")
		if err != nil {
			return err
		}
		_, err = a.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 10, Recv: 10, Network: lab.TCP6})},
}

// sessions makes a case of sessions. Each accept is a row with the peer.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, s)
		if err != nil {
			return err
		}
		if s.Uring { // the first accept is requested before the tool starts
			if err := t.Server.Within(unix.SYS_IO_URING_ENTER); err != nil {
				return err
			}
		}
		if err := x.Attach(); err != nil {
			return err
		}
		res, err := t.Run()
		if err != nil {
			return err
		}
		want := s.Count
		if k, err := probe.Running(); s.Uring && err == nil && probe.UringLayout("old")(k) == nil {
			want-- // the completion does not name the operation
		}
		x.Await(want)
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		x.Fail(trial.RowCount(len(rows), want))
		ports := map[uint64]bool{}
		for _, c := range res.Client.Sessions {
			ports[uint64(c.ClientPort)] = true
		}
		for _, r := range rows {
			x.Want(r, "pid", t.Server.PID)
			x.Want(r, "comm", t.Server.Comm)
			x.Want(r, "raddr", x.World.Addr("client", t.Sessions.Network))
			x.Want(r, "lport", t.Port)
			x.Want(r, "proto", map[bool]string{true: "mptcp", false: "tcp"}[s.Network == lab.MPTCP4 && !s.Plain])
			x.Want(r, "result", "Success")
			x.Want(r, "errno", "-")
			x.Want(r, "via", map[bool]string{true: "uring", false: "syscall"}[s.Uring])
			if p := r.Get("rport").N; !ports[p] {
				x.Errorf("port %d is no client's, or is there twice", p)
			} else {
				delete(ports, p)
			}
		}
		return nil
	}
}
