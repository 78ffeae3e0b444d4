// SPDX-License-Identifier: Apache-2.0

package tcpsynbl

import (
	"errors"
	"fmt"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// lazy listens with a backlog and does not accept.
func lazy(w *lab.World, network lab.Network, backlog int) (*lab.Targets, error) {
	return lab.StartTargets(w, "server", "lazy", lab.Target{Network: network, Backlog: backlog})
}

// full sends n SYNs, one after the other, to a listener with a backlog of two. The first
// three fill its accept queue. Each SYN is processed before the next one is sent.
func full(w *lab.World, t *lab.Targets, network lab.Network, n int) error {
	k, err := lab.StartKnocks(w, "client", "eager", network, t.Addrs[0], "")
	if err != nil {
		return err
	}
	before, err := w.Counters("server")
	if err != nil {
		return err
	}
	for i := range n {
		if err := k.Knock(); err != nil {
			return err
		}
		if i < 3 {
			err = queued(w, t, i+1)
		} else {
			err = dropped(w, before, i-2)
		}
		if err != nil {
			return err
		}
	}
	return k.End()
}

// queued waits until n connections are in the accept queue.
func queued(w *lab.World, t *lab.Targets, n int) error {
	return lab.Until(fmt.Sprintf("%d connections wait to be accepted", n), func() (bool, error) {
		got, err := w.Queued("server", t.Port(0))
		return got >= n, err
	})
}

// dropped waits until the server has dropped n SYNs.
func dropped(w *lab.World, before lab.Counters, n int) error {
	return lab.Until(fmt.Sprintf("%d SYNs are dropped", n), func() (bool, error) {
		now, err := w.Counters("server")
		return now.Since(before)["TcpExtListenDrops"] >= int64(n), err
	})
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 23, Send: 1, Recv: 1, ServerComm: "web", Backlog: 500}); err != nil {
			return err
		}
		t, err := lazy(w, lab.TCP4, 2)
		if err != nil {
			return err
		}
		return full(w, t, lab.TCP4, 5)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: overflow(lab.TCP4)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: overflow(lab.TCP6)},
}

// parts separates the rows of the two views.
func parts(rows []*row.Row) (lengths, drops []*row.Row) {
	for _, r := range rows {
		if r.Schema.View == "drops" {
			drops = append(drops, r)
		} else {
			lengths = append(lengths, r)
		}
	}
	return lengths, drops
}

// overflow: ten SYNs to a queue that holds three. The kernel counts as many
// drops as there are rows.
func overflow(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := x.Attach(); err != nil {
			return err
		}
		t, err := lazy(x.World, network, 2)
		if err != nil {
			return err
		}
		return overflows(x, t, network)
	}
}

func overflows(x *trial.Trial, t *lab.Targets, network lab.Network) error {
	before, err := counters(x.World)
	if err != nil {
		return err
	}
	if err := errors.Join(full(x.World, t, network, 10), x.World.Quiet()); err != nil {
		return err
	}
	counted, err := counters(x.World)
	if err != nil {
		return err
	}
	// SYNs without an answer are retransmitted after a second.
	again := counted["client"].Since(before["client"])["TcpExtTCPSynRetrans"]
	server, want := counted["server"].Since(before["server"]), 7+again
	x.Await(int(want))
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	lengths, drops := parts(rows)
	if n := int64(len(drops)); n != want || n != server["TcpExtListenOverflows"] || n != server["TcpExtListenDrops"] {
		x.Errorf("%d drops; the kernel counts %d overflows and %d drops; want %d of each", n, server["TcpExtListenOverflows"], server["TcpExtListenDrops"], want)
	}
	for _, r := range drops {
		x.Want(r, "at", "SYN")
		x.Want(r, "queue", "accept")
		x.Want(r, "used", 3)
		x.Want(r, "limit", 2)
		x.Want(r, "pid", t.PID)
		x.Want(r, "comm", "lazy")
		x.Want(r, "lport", t.Port(0))
		x.Want(r, "raddr", x.World.Addr("client", network))
	}
	if len(lengths) != 2 {
		return fmt.Errorf("%d histograms, want 2", len(lengths))
	}
	for _, r := range lengths {
		x.Want(r, "comm", "lazy")
		x.Want(r, "laddr", x.World.Addr("server", network))
		x.Want(r, "lport", t.Port(0))
		x.Want(r, "limit", 2)
		syns, sum := uint64(3+want), uint64(0) // no request stays in the SYN queue
		if r.Get("metric").S == "accept" {
			sum = uint64(0 + 1 + 2 + 3*want)
		}
		if h := r.Get("used").Ref.(*kern.Hist); h.Count != syns || h.Sum != sum {
			x.Errorf("%s: %d SYNs, sum of lengths %d; want %d and %d", r.Get("metric").S, h.Count, h.Sum, syns, sum)
		}
	}
	return nil
}

// counters are those of both hosts.
func counters(w *lab.World) (map[string]lab.Counters, error) {
	all := map[string]lab.Counters{}
	for _, h := range slices.Backward(lab.TwoHosts) { // a SYN that the server has dropped was counted by its client
		c, err := w.Counters(h)
		if err != nil {
			return nil, err
		}
		all[h] = c
	}
	return all, nil
}
