// SPDX-License-Identifier: Apache-2.0

package tcpdrop

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, list, err := refused(w, lab.TCP4, 2)
		if err != nil {
			return err
		}
		defer t.End()
		c, err := lab.StartConnects(w, "", "prober", list...)
		if err != nil {
			return err
		}
		if _, err := c.Run(); err != nil {
			return err
		}
		s, err := lab.StartTCP(w, lab.Sessions{Send: 333, Recv: 1, ClientComm: "browser", ServerComm: "web"})
		if err != nil {
			return err
		}
		return deaf(s)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "no-socket", Hosts: lab.TwoHosts, Run: noSocket(lab.TCP4)},
	{Name: "no-socket-ipv6", Hosts: lab.TwoHosts, Run: noSocket(lab.TCP6)},
}

// refused makes n connects to a port without a listener.
func refused(w *lab.World, network lab.Network, n int) (*lab.Targets, []lab.Attempt, error) {
	t, err := lab.StartTargets(w, "server", "holder", lab.Target{Network: network, Kind: lab.BoundOnly})
	if err != nil {
		return nil, nil, err
	}
	var list []lab.Attempt
	for range n {
		list = append(list, lab.Attempt{Name: "refused", Network: network, Addr: t.Addrs[0], Want: unix.ECONNREFUSED})
	}
	return t, list, nil
}

// deaf makes the session of s lossy: the client receives neither the
// acknowledgement of its data, nor the answer, nor the answer's retransmission. So
// it sends its data again, which the server already has.
func deaf(s *lab.TCP) error {
	l, err := lab.StartLoss(lab.Loss{From: s.Port, Flags: lab.ACK, Skip: 1, Count: 3})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = s.Run()
	return err
}

// named is the name of a reason on this kernel.
func named(reason string) string {
	k, err := probe.Running()
	if err != nil || len(k.Args("kfree_skb")) < 3 {
		return "-"
	}
	return reason
}

// noSocket: a SYN to a port without a listener. The client drops nothing.
func noSocket(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, list, err := refused(x.World, network, 23)
		if err != nil {
			return err
		}
		c, err := lab.StartConnects(x.World, "", "prober", list...)
		if err != nil {
			return err
		}
		rows, _, err := trial.RowsOf(x, 23, c.Run, "--lport", fmt.Sprint(t.Port(0)))
		if err != nil {
			return err
		}
		if err := trial.RowCount(len(rows), 23); err != nil {
			return err
		}
		for _, r := range rows {
			x.Want(r, "reason", named("NO_SOCKET"))
			x.Want(r, "flags", "S")
			x.Want(r, "dport", t.Port(0))
			x.Want(r, "lport", t.Port(0))
			x.Want(r, "daddr", x.World.Addr("server", network))
			x.Want(r, "saddr", x.World.Addr("client", network))
			x.Want(r, "bytes", 0)
			x.Want(r, "pid", "-")
			reached(x, r, map[lab.Network]string{lab.TCP4: "tcp_v4_rcv", lab.TCP6: "tcp_v6_rcv"}[network])
		}
		return nil
	}
}

// reached checks that the stack of a row contains a function, and begins where the
// packet was dropped, not at the tracepoint.
func reached(x *trial.Trial, r *row.Row, function string) {
	st, ok := r.Get("kstack").Ref.(*kern.Stack)
	if !ok {
		x.Errorf("no stack in %s", trial.Dump(r))
		return
	}
	if !slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return f.Sym == function }) {
		x.Errorf("%s is not in the stack %v", function, st.Frames)
	}
	if strings.Contains(st.Frames[0].Sym, "trace") {
		x.Errorf("the stack begins with its tracer: %v", st.Frames)
	}
}
