// SPDX-License-Identifier: Apache-2.0

package tcpretrans

import (
	"errors"
	"fmt"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "fast-mptcp", Hosts: lab.TwoHosts, Run: trial.Undisturbed(fastMPTCP)},
		{Name: "fast-netem", Hosts: lab.TwoHosts, Run: trial.Undisturbed(fastNetem)},
		{Name: "counts", Hosts: lab.TwoHosts, Run: trial.Undisturbed(counts)},
		{Name: "none", Hosts: lab.TwoHosts, Run: trial.Undisturbed(none)},
		{Name: "unsent", Hosts: lab.TwoHosts, Run: trial.Undisturbed(unsent)},
		{Name: "probe", Hosts: lab.TwoHosts, Run: trial.Undisturbed(tailProbe)},
		{Name: "timeouts", Hosts: lab.TwoHosts, Run: trial.Undisturbed(timeouts(lab.TCP4)), Slow: true},
		{Name: "timeouts-ipv6", Hosts: lab.TwoHosts, Run: trial.Undisturbed(timeouts(lab.TCP6)), Slow: true},
		{Name: "synack", Hosts: lab.TwoHosts, Run: trial.Undisturbed(synack(lab.TCP4)), Slow: true},
		{Name: "synack-ipv6", Hosts: lab.TwoHosts, Run: trial.Undisturbed(synack(lab.TCP6)), Slow: true},
	}
}

// none: nothing is lost, so there is no row, unless the machine stands still for so long
// that TCP assumes a loss. The kernel counts that.
func none(x *trial.Trial) error {
	t, rows, counted, err := lost(x, lab.Sessions{Count: 7, Send: 100000, Recv: 100000}, func(port int) lab.Loss { return lab.Loss{To: port} }, 0, "-l")
	if err != nil {
		return err
	}
	for i, of := range sides(rows, t.Port) {
		if got, n := segments(of), sent(counted[i]); got != n {
			x.Errorf("%d segments of the %s without loss, and the kernel counts %d", got, lab.TwoHosts[i], n)
		}
	}
	return nil
}

// tail is the loss of the only segment of a session, n times.
func tail(n int) func(int) lab.Loss {
	return func(port int) lab.Loss { return lab.Loss{To: port, Data: 1, Count: n} }
}

// timeouts: a tail that is lost three times is retransmitted by a probe and two
// timeouts. If the answer to the last of them is late, there are more.
func timeouts(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, all, counted, err := lost(x, lab.Sessions{Send: 333, Recv: 1, Network: network}, tail(3), 3, "-l", "-s")
		if err != nil {
			return err
		}
		rows := sides(all, t.Port)
		needless(x, t, rows[1], counted[1])
		n := sent(counted[0])
		if err := trial.RowCount(len(rows[0]), int(max(n, 3))); err != nil {
			return err
		}
		for i, r := range rows[0][:3] {
			x.Want(r, "cause", [...]string{"tlp", "rto", "rto"}[i])
			x.Want(r, "type", [...]string{"L", "R", "R"}[i])
			x.Want(r, "attempts", i)
			x.Want(r, "segments", 1)
			x.Want(r, "total_retrans", i+1)
			x.Want(r, "bytes", 333)
			x.Want(r, "seq", rows[0][0].Get("seq").N)
			x.Want(r, "errno", "-")
			if r.Get("seq").N == 0 {
				x.Errorf("no seq")
			}
			x.Want(r, "state", "ESTABLISHED")
			x.Want(r, "pid", t.Client.PID)
			x.Want(r, "comm", t.Client.Comm)
			x.Want(r, "rport", t.Port)
			x.Want(r, "raddr", t.Sessions.Addrs[0])
		}
		if got := segments(rows[0]); got != n {
			x.Errorf("%d segments, and the kernel counts %d", got, n)
		}
		return nil
	}
}

// tailProbe: without -l a tail loss probe is not shown. Other retransmissions are
// shown; they occur only if the machine stands still.
func tailProbe(x *trial.Trial) error {
	t, rows, counted, err := lost(x, lab.Sessions{Send: 333, Recv: 1}, tail(1), 0)
	if err != nil {
		return err
	}
	for i, of := range sides(rows, t.Port) {
		probes := counted[i]["TcpExtTCPLossProbes"]
		if got, want := segments(of), sent(counted[i])-probes; got != want || i == 0 && probes == 0 {
			x.Errorf("%d segments of the %s and %d probes, want %d without them", got, lab.TwoHosts[i], probes, want)
		}
	}
	return nil
}

// unsent: once a segment has been retransmitted, the client's queue drops packets that
// are larger than an ACK, until one could not be sent. If the tracepoint reports this,
// the error is ENOBUFS. The kernel counts it in RetransSegs, and also as failed.
func unsent(x *trial.Trial) error {
	for _, flags := range [][]string{{"-l"}, {"-l", "--count-by-flow"}} {
		t, err := lab.StartTCP(x.World, lab.Sessions{Send: 777, Recv: 1})
		if err != nil {
			return err
		}
		before, err := x.World.Counters("client")
		if err != nil {
			return err
		}
		if err := x.Attach(flags...); err != nil {
			return err
		}
		losing, err := lab.StartLoss(lab.Loss{To: t.Port, Data: 1, Count: 1 << 20})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { _, err := t.Run(); ended <- err }()
		err = grown(x.World, before, "TcpRetransSegs")
		if err == nil {
			err = x.World.SetQdisc("client", "eth0", lab.Qdisc{Kind: "tbf", Rate: 1 << 20, Burst: 500, Limit: 1 << 20})
		}
		if err == nil {
			err = grown(x.World, before, "TcpExtTCPRetransFail")
			err = errors.Join(err, x.World.SetQdisc("client", "eth0", lab.Qdisc{Kind: "pfifo", Limit: 1000}))
		}
		err = errors.Join(err, losing.Close(), <-ended)
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		if err := x.World.Closed(); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		rows = sides(rows, t.Port)[0]
		after, err := x.World.Counters("client")
		if err != nil {
			return err
		}
		counted := after.Since(before)
		all, failed := counted["TcpRetransSegs"], counted["TcpExtTCPRetransFail"]
		var segs, told int64
		for _, r := range rows {
			x.Want(r, "rport", t.Port)
			segs += int64(r.Get("segments").N)
			if c := r.Get("errno"); c != nil && c.Kind != row.Null {
				told++
				x.Want(r, "errno", "ENOBUFS")
				x.Want(r, "segments", 0)
				x.Want(r, "bytes", 0)
			}
		}
		if segs != all-failed {
			x.Errorf("%v: %d rows of %d segments, and the kernel counts %d, of which %d failed", flags, len(rows), segs, all, failed)
		}
		k, err := probe.Running()
		if err != nil {
			return err
		}
		if len(flags) == 1 && len(k.Args("tcp_retransmit_skb")) > 2 && told != failed {
			x.Errorf("%d rows of what could not be sent, and the kernel counts %d", told, failed)
		}
	}
	return nil
}

// grown waits until a counter of the client has grown.
func grown(w *lab.World, before lab.Counters, name string) error {
	return lab.Until(name+" grows", func() (bool, error) {
		now, err := w.Counters("client")
		return now.Since(before)[name] > 0, err
	})
}

func fastMPTCP(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return fast(lab.MPTCP4)(x)
}

// fastNetem: the client's device loses packets at random. Most are
// retransmitted because later ones arrived. Whatever the cause, the number of
// segments equals the kernel's count.
func fastNetem(x *trial.Trial) error {
	if err := x.World.Lose("client", "eth0", 0.03); errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	return untilFast(x, lab.Sessions{Send: 16 << 20, Recv: 1}, func(port int) lab.Loss { return lab.Loss{To: port} })
}

// counts: packets and segments by flow.
func counts(x *trial.Trial) error {
	t, all, counted, err := lost(x, lab.Sessions{Send: 1 << 20, Recv: 1}, middle, 0, "-c", "-l")
	if err != nil {
		return err
	}
	rows := sides(all, t.Port)
	needless(x, t, rows[1], counted[1])
	if len(rows[0]) != 1 {
		return fmt.Errorf("%d rows, want 1: one flow", len(rows[0]))
	}
	x.Want(rows[0][0], "rport", t.Port)
	x.Want(rows[0][0], "segments", sent(counted[0]))
	return nil
}

// synack: the client, which hears nothing, sends its SYN again at the same
// time; both hosts count what they sent.
func synack(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		loss := func(port int) lab.Loss { return lab.Loss{From: port, Flags: lab.SYN | lab.ACK, Count: 1} }
		t, all, counted, err := lost(x, lab.Sessions{Send: 10, Recv: 1, Network: network}, loss, 1, "-l")
		if err != nil {
			return err
		}
		rows := sides(all, t.Port)
		var syns [2]int64 // later retransmissions occur only on a machine that stands still
		for _, r := range rows[0] {
			x.Want(r, "pid", t.Client.PID)
			if trial.Value(r.Get("state")) == "SYN_SENT" {
				syns[0]++
				x.Want(r, "cause", "rto")
			}
		}
		for _, r := range rows[1] {
			x.Want(r, "pid", t.Server.PID)
			if r.Get("cause").S == "synack" {
				syns[1]++
				x.Want(r, "type", "S")
				x.Want(r, "laddr", t.Sessions.Addrs[0])
				x.Want(r, "attempts", syns[1])
			}
		}
		for i, host := range lab.TwoHosts {
			if got, n := segments(rows[i]), sent(counted[i]); got != n {
				x.Errorf("%d rows of %d segments of the %s, and the kernel counts %d", len(rows[i]), got, host, n)
			}
			if n := counted[i]["TcpExtTCPSynRetrans"]; syns[i] != n {
				x.Errorf("%d SYNs of the %s, and the kernel counts %d", syns[i], host, n)
			}
		}
		if syns[1] == 0 {
			x.Errorf("no SYN-ACK was sent again")
		}
		return nil
	}
}
