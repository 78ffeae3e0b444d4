// SPDX-License-Identifier: Apache-2.0

package tcpsynbl

import (
	"fmt"
	"net/netip"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "older", Hosts: lab.TwoHosts, Run: overflowOlder},
		{Name: "syn-queue", Hosts: lab.TwoHosts, Run: synQueue},
		{Name: "room", Hosts: lab.TwoHosts, Run: room},
		{Name: "both-families", Hosts: lab.TwoHosts, Run: bothFamilies},
		{Name: "ack", Hosts: lab.TwoHosts, Run: lateACK},
	}
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return overflow(lab.MPTCP4)(x)
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
	// SYNs without an answer are retransmitted after a second, also while
	// the tool ends.
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

// bothFamilies: a listener on :: is one listener for connections of both
// families.
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

// lateACK: the handshake of one connection is delayed until another one has
// filled the accept queue. Then its last ACK, which comes with its FIN, finds
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
