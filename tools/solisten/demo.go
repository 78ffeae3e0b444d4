// SPDX-License-Identifier: Apache-2.0

package solisten

import (
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

const somaxconn = 211 // in the worlds below

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		t, err := lab.StartTargets(w, "", "web", lab.Target{Network: lab.TCP4, Backlog: 511},
			lab.Target{Network: lab.TCP6, Backlog: 100000}, lab.Target{Network: lab.Unix, Addr: "@control", Backlog: 5})
		if err != nil {
			return err
		}
		return t.End()
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "listens", Run: listens},
}

// listens: every kind of listener once, MPTCP too.
func listens(x *trial.Trial) error {
	if err := x.World.Sysctl("", "net.core.somaxconn", fmt.Sprint(somaxconn)); err != nil {
		return err
	}
	targets := []lab.Target{
		{Network: lab.TCP4, Backlog: 7}, {Network: lab.TCP6, Backlog: 100000}, {Network: lab.Unix, Addr: "@lab-listen", Backlog: 13},
		{Network: lab.UnixPacket, Addr: "@lab-packet", Backlog: 100000},
	}
	if lab.MPTCPSupported() == nil {
		targets = append(targets, lab.Target{Network: lab.MPTCP4, Backlog: 17}, lab.Target{Network: lab.MPTCP6, Backlog: 100000})
	}
	if err := x.Attach(); err != nil {
		return err
	}
	t, err := lab.StartTargets(x.World, "", "listener", targets...)
	if err != nil {
		return err
	}
	if err := t.End(); err != nil {
		return err
	}
	rows, err := x.Exactly(len(targets))
	if err != nil {
		return err
	}
	for i, r := range rows {
		n := targets[i].Network
		proto := map[lab.Network]string{lab.MPTCP4: "mptcp", lab.MPTCP6: "mptcp", lab.Unix: "unix", lab.UnixPacket: "unix"}[n]
		if proto == "" {
			proto = "tcp"
		}
		x.Want(r, "pid", t.PID)
		x.Want(r, "comm", "listener")
		x.Want(r, "ret", 0)
		x.Want(r, "backlog", targets[i].Backlog)
		x.Want(r, "limit", min(targets[i].Backlog, somaxconn))
		x.Want(r, "proto", proto)
		if n.Family() == unix.AF_UNIX {
			x.Want(r, "laddr", targets[i].Addr)
			x.Want(r, "lport", "-")
		} else {
			x.Want(r, "laddr", x.World.Addr("", n))
			x.Want(r, "lport", t.Port(i))
		}
		x.Want(r, "netns", x.World.Netns(""))
	}
	return nil
}
