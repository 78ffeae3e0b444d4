// SPDX-License-Identifier: Apache-2.0

package tcpsynbl

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// inProgress is how an attempt ends that nobody waits for.
const inProgress = unix.EINPROGRESS

// full makes n connections, one after the other, to a listener that nobody
// accepts from. The first three fill a backlog of two; nobody waits for the rest.
func full(w *lab.World, network lab.Network, n int) (*lab.Targets, *lab.Connects, error) {
	t, err := lab.StartTargets(w, "server", "lazy", lab.Target{Network: network, Backlog: 2})
	if err != nil {
		return nil, nil, err
	}
	var list []lab.Attempt
	for i := range n {
		a := lab.Attempt{Name: "queued", Network: network, Addr: t.Addrs[0]}
		if i >= 3 {
			a.Mode, a.Want = lab.Unfollowed, inProgress
		}
		list = append(list, a)
	}
	c, err := lab.StartConnects(w, "client", "eager", list...)
	return t, c, err
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 23, Send: 1, Recv: 1, ServerComm: "web", Backlog: 500}); err != nil {
			return err
		}
		_, c, err := full(w, lab.TCP4, 5)
		if err != nil {
			return err
		}
		_, err = c.Run()
		return err
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
		t, c, err := full(x.World, network, 10)
		if err != nil {
			return err
		}
		return overflows(x, t, c, network)
	}
}

// overflowOlder: the listener was there before the tool.
func overflowOlder(x *trial.Trial) error {
	t, c, err := full(x.World, lab.TCP4, 10)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	return overflows(x, t, c, lab.TCP4)
}

func overflows(x *trial.Trial, t *lab.Targets, c *lab.Connects, network lab.Network) error {
	before, err := x.World.Counters("server")
	if err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	after, err := x.World.Counters("server")
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	lengths, drops := parts(rows)
	counted := after.Since(before)
	if n := int64(len(drops)); n != 7 || n != counted["TcpExtListenOverflows"] || n != counted["TcpExtListenDrops"] {
		x.Errorf("%d drops; the kernel counts %d overflows and %d drops; want 7 of each", n, counted["TcpExtListenOverflows"], counted["TcpExtListenDrops"])
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
		want := uint64(0) // nobody stays in the SYN queue
		if r.Get("metric").S == "accept" {
			want = 0 + 1 + 2 + 7*3
		}
		if h := r.Get("used").Ref.(*kern.Hist); h.Count != 10 || h.Sum != want {
			x.Errorf("%s: %d SYNs, sum of lengths %d; want 10 and %d", r.Get("metric").S, h.Count, h.Sum, want)
		}
	}
	return nil
}

// synQueue: without cookies and without answers, requests fill the SYN queue.
func synQueue(x *trial.Trial) error {
	if err := x.World.Sysctl("server", "net.ipv4.tcp_syncookies", "0"); err != nil {
		return err
	}
	t, err := lab.StartTargets(x.World, "server", "lazy", lab.Target{Network: lab.TCP4, Backlog: 2})
	if err != nil {
		return err
	}
	a := lab.Attempt{Name: "unanswered", Network: lab.TCP4, Addr: t.Addrs[0], Mode: lab.Unfollowed, Want: inProgress}
	c, err := lab.StartConnects(x.World, "client", "eager", slices.Repeat([]lab.Attempt{a}, 7)...)
	if err != nil {
		return err
	}
	loss, err := lab.StartLoss(lab.Loss{From: t.Port(0), Flags: lab.SYN | lab.ACK, Count: 1000})
	if err != nil {
		return err
	}
	defer loss.Close()
	before, err := x.World.Counters("server")
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := c.Run(); return err })
	if err != nil {
		return err
	}
	after, err := x.World.Counters("server")
	if err != nil {
		return err
	}
	_, drops := parts(rows)
	if n := after.Since(before)["TcpExtListenDrops"]; len(drops) != 4 || n != 4 {
		x.Errorf("%d drops, and the kernel counts %d; want 4", len(drops), n)
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
	t, err := lab.StartTargets(x.World, "server", "lazy", lab.Target{Network: lab.TCP4, Backlog: 1})
	if err != nil {
		return err
	}
	a := lab.Attempt{Name: "late", Network: lab.TCP4, Addr: t.Addrs[0], Mode: lab.Unfollowed, Want: inProgress}
	b := lab.Attempt{Name: "early", Network: lab.TCP4, Addr: t.Addrs[0]}
	c, err := lab.StartConnects(x.World, "client", "eager", a, b, b)
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
	loss, err := lab.StartLoss(lab.Loss{To: t.Port(0), Flags: lab.ACK, Count: 1})
	if err != nil {
		return err
	}
	defer loss.Close()
	if _, err := c.Run(); err != nil {
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
