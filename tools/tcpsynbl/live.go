// SPDX-License-Identifier: Apache-2.0

package tcpsynbl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// lazy listens with a backlog, and nobody accepts from it.
func lazy(w *lab.World, network lab.Network, backlog int) (*lab.Targets, error) {
	return lab.StartTargets(w, "server", "lazy", lab.Target{Network: network, Backlog: backlog})
}

// full sends n SYNs, one after the other, to a listener with a backlog of two. The first
// three fill its accept queue. Each has been dealt with when the next one is sent.
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

// queued waits until so many connections are in the accept queue.
func queued(w *lab.World, t *lab.Targets, n int) error {
	return lab.Until(fmt.Sprintf("%d connections wait to be accepted", n), func() (bool, error) {
		got, err := w.Queued("server", t.Port(0))
		return got >= n, err
	})
}

// dropped waits until the server has dropped so many SYNs.
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

// Live is the live cases.
var Live = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: overflow(lab.TCP4)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: overflow(lab.TCP6)},
	{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
	{Name: "older", Hosts: lab.TwoHosts, Run: overflowOlder},
	{Name: "syn-queue", Hosts: lab.TwoHosts, Run: synQueue},
	{Name: "room", Hosts: lab.TwoHosts, Run: room},
	{Name: "both-families", Hosts: lab.TwoHosts, Run: bothFamilies},
	{Name: "ack", Hosts: lab.TwoHosts, Run: lateACK},
}

// parts tells the rows of both views apart.
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

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return overflow(lab.MPTCP4)(x)
}

// overflow: ten SYNs for a queue that holds three. The kernel counts as many
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

// overflowOlder: the listener was there before the tool.
func overflowOlder(x *trial.Trial) error {
	t, err := lazy(x.World, lab.TCP4, 2)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	return overflows(x, t, lab.TCP4)
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
	// SYNs that nobody answers are sent again after a second.
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
		syns, sum := uint64(3+want), uint64(0) // nobody stays in the SYN queue
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
	for _, h := range lab.TwoHosts {
		c, err := w.Counters(h)
		if err != nil {
			return nil, err
		}
		all[h] = c
	}
	return all, nil
}

// synQueue: without cookies and without answers, requests fill the SYN queue.
func synQueue(x *trial.Trial) error {
	if err := x.World.Sysctl("server", "net.ipv4.tcp_syncookies", "0"); err != nil {
		return err
	}
	t, err := lazy(x.World, lab.TCP4, 2)
	if err != nil {
		return err
	}
	k, err := lab.StartKnocks(x.World, "client", "eager", lab.TCP4, t.Addrs[0], "")
	if err != nil {
		return err
	}
	loss, err := lab.StartLoss(lab.Loss{From: t.Port(0), Flags: lab.SYN | lab.ACK, Count: 1 << 20})
	if err != nil {
		return err
	}
	defer loss.Close()
	before, err := counters(x.World)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	for i := range 7 {
		if err := k.Knock(); err != nil {
			return err
		}
		if i < 3 {
			err = lab.Until("a SYN is answered", func() (bool, error) {
				n, err := loss.Seen()
				return n > uint64(i), err
			})
		} else {
			err = dropped(x.World, before["server"], i-2)
		}
		if err != nil {
			return err
		}
	}
	x.Await(4)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	counted, err := counters(x.World)
	if err != nil {
		return err
	}
	_, drops := parts(rows)
	n, again := counted["server"].Since(before["server"])["TcpExtListenDrops"], counted["client"].Since(before["client"])["TcpExtTCPSynRetrans"]
	// SYNs that nobody answers are sent again after a second, also while the tool ends.
	if got := int64(len(drops)); got < 4 || got > n || again == 0 && (got != 4 || n != 4) {
		x.Errorf("%d drops, and the kernel counts %d, with %d SYNs that were sent again; want 4 without these", got, n, again)
	}
	for _, r := range drops {
		x.Want(r, "queue", "syn")
		x.Want(r, "used", 3)
		x.Want(r, "limit", 2)
		x.Want(r, "at", "SYN")
	}
	return nil
}

// room: sessions that are accepted at once drop nothing.
func room(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 23, Backlog: 101})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := t.Run(); return err }, "--by=metric,limit")
	if err != nil {
		return err
	}
	lengths, drops := parts(rows)
	if len(drops) != 0 || len(lengths) != 2 {
		return fmt.Errorf("%d drops and %d histograms, want 0 and 2", len(drops), len(lengths))
	}
	for _, r := range lengths {
		x.Want(r, "limit", 101)
		if h := r.Get("used").Ref.(*kern.Hist); h.Count != 23 {
			x.Errorf("%d SYNs, want 23", h.Count)
		}
	}
	return nil
}

// bothFamilies: a listener on :: is one, whichever way connections come.
func bothFamilies(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{
		Count: 22, Network: lab.TCP6, Port: 7002,
		Addrs: []netip.Addr{x.World.Addr6("server"), netip.AddrFrom16(x.World.Addr4("server").As16())},
	})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := t.Run(); return err }, "--by=metric,laddr,lport")
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "laddr", "::")
		x.Want(r, "lport", 7002)
		if h := r.Get("used").Ref.(*kern.Hist); h.Count != 22 {
			x.Errorf("%d SYNs, want 22", h.Count)
		}
	}
	if len(rows) != 2 {
		x.Errorf("%d histograms, want 2", len(rows))
	}
	return nil
}

// lateACK: the handshake of one connection is held up until another one has
// filled the accept queue. Then its last step, which comes with its FIN, finds
// no room.
func lateACK(x *trial.Trial) error {
	const port = 7003 // of the one that is late
	t, err := lazy(x.World, lab.TCP4, 1)
	if err != nil {
		return err
	}
	late, err := lab.StartKnocks(x.World, "client", "late", lab.TCP4, t.Addrs[0], lab.TCP4.At(x.World.Addr4("client"), port))
	if err != nil {
		return err
	}
	early, err := lab.StartKnocks(x.World, "client", "early", lab.TCP4, t.Addrs[0], "")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if !slices.ContainsFunc(x.Choices, func(c trial.Choice) bool { return c.Point == "ack" && c.Way != "" }) {
		x.Detach()
		return trial.Skip("the last step of a handshake cannot be seen without function tracing")
	}
	loss, err := lab.StartLoss(lab.Loss{From: port, Flags: lab.ACK, Count: 1 << 20})
	if err != nil {
		return err
	}
	defer loss.Close()
	if err := late.Knock(); err != nil {
		return err
	}
	err = lab.Until("an ACK is lost", func() (bool, error) { n, err := loss.Seen(); return n > 0, err })
	for i := range 2 {
		if err == nil {
			err = early.Knock()
		}
		if err == nil {
			err = queued(x.World, t, i+1)
		}
	}
	if err == nil {
		err = loss.Close()
	}
	if err == nil {
		err = late.End()
	}
	if err != nil {
		return err
	}
	x.Await(1)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	_, drops := parts(rows)
	if len(drops) == 0 {
		x.Errorf("no drop")
	}
	for _, r := range drops {
		x.Want(r, "at", "ACK")
		x.Want(r, "queue", "accept")
		x.Want(r, "used", 2)
		x.Want(r, "pid", t.PID)
	}
	return nil
}
