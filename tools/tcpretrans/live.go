// SPDX-License-Identifier: Apache-2.0

package tcpretrans

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, err := lab.StartTCP(w, lab.Sessions{Send: 333, Recv: 1, ClientComm: "browser", ServerComm: "web"})
		if err != nil {
			return err
		}
		if err := t.RunLossy(lab.Loss{To: t.Port, Data: 1, Count: 3}); err != nil {
			return err
		}
		t, err = lab.StartTCP(w, lab.Sessions{Send: 1 << 20, Recv: 1, Network: lab.TCP6, ClientComm: "backup", ServerComm: "store"})
		if err != nil {
			return err
		}
		if err := t.RunLossy(lab.Loss{To: t.Port, Data: 1, Skip: 4, Count: 1}); err != nil {
			return err
		}
		t, err = lab.StartTCP(w, lab.Sessions{Send: 10, Recv: 1, ClientComm: "prober", ServerComm: "web"})
		if err != nil {
			return err
		}
		return t.RunLossy(lab.Loss{From: t.Port, Flags: lab.SYN | lab.ACK, Count: 1})
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "fast", Hosts: lab.TwoHosts, Run: fast(lab.TCP4)},
	{Name: "fast-ipv6", Hosts: lab.TwoHosts, Run: fast(lab.TCP6)},
	{Name: "fast-mptcp", Hosts: lab.TwoHosts, Run: fastMPTCP},
	{Name: "fast-netem", Hosts: lab.TwoHosts, Run: fastNetem},
	{Name: "counts", Hosts: lab.TwoHosts, Run: counts},
	{Name: "none", Hosts: lab.TwoHosts, Run: none},
	{Name: "unsent", Hosts: lab.TwoHosts, Run: unsent},
	{Name: "probe", Hosts: lab.TwoHosts, Run: tailProbe},
	{Name: "timeouts", Hosts: lab.TwoHosts, Run: timeouts(lab.TCP4), Slow: true},
	{Name: "timeouts-ipv6", Hosts: lab.TwoHosts, Run: timeouts(lab.TCP6), Slow: true},
	{Name: "synack", Hosts: lab.TwoHosts, Run: synack(lab.TCP4), Slow: true},
	{Name: "synack-ipv6", Hosts: lab.TwoHosts, Run: synack(lab.TCP6), Slow: true},
}

// lost runs the tool over sessions that lose segments. It returns the rows and
// what both hosts counted meanwhile.
func lost(x *trial.Trial, s lab.Sessions, loss func(port int) lab.Loss, n int, flags ...string) (t *lab.TCP, rows []*row.Row, counted [2]lab.Counters, err error) {
	if t, err = lab.StartTCP(x.World, s); err != nil {
		return
	}
	if err = x.Attach(flags...); err != nil {
		return
	}
	var before [2]lab.Counters
	for i, h := range lab.TwoHosts {
		if before[i], err = x.World.Counters(h); err != nil {
			return
		}
	}
	if err = t.RunLossy(loss(t.Port)); err != nil {
		return
	}
	if n > 0 {
		x.Await(n)
	}
	if rows, err = x.Detach(); err != nil {
		return
	}
	for i, h := range lab.TwoHosts {
		var after lab.Counters
		if after, err = x.World.Counters(h); err != nil {
			return
		}
		counted[i] = after.Since(before[i])
	}
	x.NoneLost(tool.LossOwner)
	return
}

func none(x *trial.Trial) error {
	_, rows, _, err := lost(x, lab.Sessions{Count: 7, Send: 100000, Recv: 100000}, func(port int) lab.Loss { return lab.Loss{To: port} }, 0)
	if len(rows) != 0 {
		x.Errorf("%d rows without loss", len(rows))
	}
	return err
}

// tail is the loss of the only segment of a session, n times.
func tail(n int) func(int) lab.Loss {
	return func(port int) lab.Loss { return lab.Loss{To: port, Data: 1, Count: n} }
}

// timeouts: a tail that is lost three times is sent again by a probe and two
// timeouts.
func timeouts(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, rows, counted, err := lost(x, lab.Sessions{Send: 333, Recv: 1, Network: network}, tail(3), 3, "-l", "-s")
		if err != nil {
			return err
		}
		if err := trial.RowCount(len(rows), 3); err != nil {
			return err
		}
		for i, r := range rows {
			x.Want(r, "cause", [...]string{"tlp", "rto", "rto"}[i])
			x.Want(r, "type", [...]string{"L", "R", "R"}[i])
			x.Want(r, "attempts", i)
			x.Want(r, "segments", 1)
			x.Want(r, "total_retrans", i+1)
			x.Want(r, "bytes", 333)
			x.Want(r, "seq", rows[0].Get("seq").N)
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
		if n := counted[0]["TcpRetransSegs"]; n != 3 {
			x.Errorf("the kernel counts %d segments, want 3", n)
		}
		return nil
	}
}

// tailProbe: without -l a tail loss probe is not shown.
func tailProbe(x *trial.Trial) error {
	_, rows, counted, err := lost(x, lab.Sessions{Send: 333, Recv: 1}, tail(1), 0)
	if err != nil {
		return err
	}
	if n := counted[0]["TcpExtTCPLossProbes"]; len(rows) != 0 || n != 1 {
		x.Errorf("%d rows and %d probes, want 0 and 1", len(rows), n)
	}
	return nil
}

// middle is the loss of one packet in the midst of many.
func middle(port int) lab.Loss { return lab.Loss{To: port, Data: 1, Skip: 4, Count: 1} }

// fast: what follows a lost packet tells the sender, which sends it again. The
// packet may be of several segments: their sum is the socket's own.
func fast(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, rows, counted, err := lost(x, lab.Sessions{Send: 1 << 20, Recv: 1, Network: network}, middle, 1, "-l")
		if err != nil {
			return err
		}
		var segs uint64
		causes := map[string]int64{}
		for _, r := range rows {
			segs += r.Get("segments").N
			causes[r.Get("cause").S]++
			if c := r.Get("errno"); c.Kind == row.Null { // else see unsent
				x.Want(r, "total_retrans", segs)
			}
			x.Want(r, "pid", t.Client.PID)
			x.Want(r, "rport", t.Port)
		}
		// A timer may be faster where the machine stands still. The kernel counts that too.
		probes := counted[0]["TcpExtTCPLossProbes"]
		if other := int64(len(rows)) - causes["fast"] - causes["tlp"]; other != 0 || causes["tlp"] > probes {
			x.Errorf("%v, want all of them fast; the kernel counts %d loss probes", causes, probes)
		} else if causes["fast"] == 0 {
			x.Fail(trial.Fewer(0, 1, "%v, want a fast one; the kernel counts %d loss probes", causes, probes))
		}
		n := counted[0]["TcpRetransSegs"] - counted[0]["TcpExtTCPRetransFail"]
		x.Fail(trial.Fewer(int(segs), int(n), "%d rows of %d segments, and the kernel counts %d", len(rows), segs, n))
		return nil
	}
}

// unsent: once a segment has been sent again, the client's queue drops what is larger than
// an ACK, until something could not be sent. Kernels that tell of that say ENOBUFS.
// The kernel counts it in RetransSegs, and again as failed.
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
		ended := make(chan error, 1)
		go func() { ended <- t.RunLossy(lab.Loss{To: t.Port, Data: 1, Count: 2}) }()
		_, err = grown(x.World, before, "TcpRetransSegs")
		if err == nil {
			err = x.World.SetQdisc("client", "eth0", lab.Qdisc{Kind: "tbf", Rate: 1 << 20, Burst: 500, Limit: 1 << 20})
		}
		if err == nil {
			_, err = grown(x.World, before, "TcpExtTCPRetransFail")
			err = errors.Join(err, x.World.SetQdisc("client", "eth0", lab.Qdisc{Kind: "pfifo", Limit: 1000}))
		}
		err = errors.Join(err, <-ended)
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		counted, err := grown(x.World, before, "TcpRetransSegs")
		if err != nil {
			return err
		}
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

// grown waits until a counter of the client has grown, and says how all have.
func grown(w *lab.World, before lab.Counters, name string) (lab.Counters, error) {
	for range 2000 {
		now, err := w.Counters("client")
		if err != nil {
			return nil, err
		}
		if since := now.Since(before); since[name] > 0 {
			return since, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s does not grow", name)
}

func fastMPTCP(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return fast(lab.MPTCP4)(x)
}

// fastNetem: the client's device loses packets by chance. Most of them are sent
// again because others arrived; whatever the cause, the segments are as many as
// the kernel counts.
func fastNetem(x *trial.Trial) error {
	if err := x.World.Lose("client", "eth0", 0.03); errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	t, rows, counted, err := lost(x, lab.Sessions{Send: 16 << 20, Recv: 1}, func(port int) lab.Loss { return lab.Loss{To: port} }, 0, "-l")
	if err != nil {
		return err
	}
	var segs, fast uint64
	for _, r := range rows {
		segs += r.Get("segments").N
		if r.Get("cause").S == "fast" {
			fast++
		}
		x.Want(r, "pid", t.Client.PID)
	}
	n := counted[0]["TcpRetransSegs"]
	x.Fail(trial.Fewer(int(segs), int(n), "%d rows of %d segments, and the kernel counts %d segments", len(rows), segs, n))
	if fast == 0 {
		x.Errorf("none of %d rows is fast", len(rows))
	}
	return nil
}

// counts: packets and segments by flow.
func counts(x *trial.Trial) error {
	t, rows, counted, err := lost(x, lab.Sessions{Send: 1 << 20, Recv: 1}, middle, 0, "-c", "-l")
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		return fmt.Errorf("%d rows, want 1: one flow", len(rows))
	}
	x.Want(rows[0], "rport", t.Port)
	x.Want(rows[0], "segments", counted[0]["TcpRetransSegs"])
	return nil
}

// synack: the client, which hears nothing, sends its SYN again at the same
// time; both hosts count what they sent.
func synack(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		loss := func(port int) lab.Loss { return lab.Loss{From: port, Flags: lab.SYN | lab.ACK, Count: 1} }
		t, rows, counted, err := lost(x, lab.Sessions{Send: 10, Recv: 1, Network: network}, loss, 1)
		if err != nil {
			return err
		}
		var sent [2]int64
		for _, r := range rows {
			if r.Get("cause").S == "synack" {
				sent[1]++
				x.Want(r, "type", "S")
				x.Want(r, "pid", t.Server.PID)
				x.Want(r, "lport", t.Port)
				x.Want(r, "laddr", t.Sessions.Addrs[0])
				x.Want(r, "attempts", sent[1])
				continue
			}
			sent[0]++
			x.Want(r, "cause", "rto")
			x.Want(r, "state", "SYN_SENT")
			x.Want(r, "pid", t.Client.PID)
		}
		for i := range sent {
			if n := counted[i]["TcpRetransSegs"]; sent[i] != n {
				x.Errorf("%d rows of the %s, and the kernel counts %d", sent[i], lab.TwoHosts[i], n)
			}
		}
		if sent[1] == 0 {
			x.Errorf("no SYN-ACK was sent again")
		}
		return nil
	}
}
