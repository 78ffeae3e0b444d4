// SPDX-License-Identifier: Apache-2.0

package tcpretrans

import (
	"errors"

	"seine/internal/lab"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "fast", Hosts: lab.TwoHosts, Run: trial.Undisturbed(fast(lab.TCP4))},
	{Name: "fast-ipv6", Hosts: lab.TwoHosts, Run: trial.Undisturbed(fast(lab.TCP6))},
}

// lost runs the tool over sessions that lose segments. It returns the rows and
// the counters of both hosts.
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
	if err = errors.Join(t.RunLossy(loss(t.Port)), x.World.Closed()); err != nil {
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

// sent is the number of segments that a host retransmitted, by its counters.
func sent(c lab.Counters) int64 { return c["TcpRetransSegs"] - c["TcpExtTCPRetransFail"] }

// sides separates the rows of the client, which come first, from those of the
// server.
func sides(rows []*row.Row, port int) (out [2][]*row.Row) {
	for _, r := range rows {
		i := 0
		if r.Get("lport").N == uint64(port) {
			i = 1
		}
		out[i] = append(out[i], r)
	}
	return out
}

// segments is the sum of the segments of rows.
func segments(rows []*row.Row) (n int64) {
	for _, r := range rows {
		n += int64(r.Get("segments").N)
	}
	return n
}

// needless: the server loses nothing. It retransmits only if the machine stands still,
// and the kernel counts that.
func needless(x *trial.Trial, t *lab.TCP, rows []*row.Row, counted lab.Counters) {
	for _, r := range rows {
		x.Want(r, "pid", t.Server.PID)
	}
	if got, n := segments(rows), sent(counted); got != n {
		x.Errorf("%d rows of %d segments of the server, and the kernel counts %d", len(rows), got, n)
	}
}

// middle is the loss of one packet in the middle of many.
func middle(port int) lab.Loss { return lab.Loss{To: port, Data: 1, Skip: 4, Count: 1} }

// fast: acknowledgements of later packets show the loss, and the sender
// retransmits. The packet may have several segments; their sum equals the
// socket's own count.
func fast(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		return untilFast(x, lab.Sessions{Send: 1 << 20, Recv: 1, Network: network}, middle)
	}
}

// untilFast makes sessions until one has a fast retransmission. If the machine or the
// client stands still while nothing else is under way, a timer comes first. The rows of
// each session agree with the kernel's counters.
func untilFast(x *trial.Trial, s lab.Sessions, loss func(int) lab.Loss) error {
	for range 20 {
		t, all, counted, err := lost(x, s, loss, 0, "-l")
		if err != nil {
			return err
		}
		rows := sides(all, t.Port)
		needless(x, t, rows[1], counted[1])
		causes := map[string]int64{}
		var segs, failed int64
		for _, r := range rows[0] {
			n := int64(r.Get("segments").N)
			segs += n
			causes[r.Get("cause").S] += n
			if r.Get("errno").Kind != row.Null { // see unsent
				failed++
			} else if failed == 0 {
				x.Want(r, "total_retrans", segs)
			}
			x.Want(r, "pid", t.Client.PID)
			x.Want(r, "rport", t.Port)
		}
		n, early, probes := sent(counted[0]), counted[0]["TcpExtTCPFastRetrans"], counted[0]["TcpExtTCPLossProbes"]
		x.Fail(trial.Fewer(int(segs), int(n), "%d rows of %d segments, and the kernel counts %d", len(rows[0]), segs, n))
		x.Fail(trial.Fewer(int(causes["fast"]), int(early), "%v, and the kernel counts %d segments that were fast", causes, early))
		if causes["tlp"] > probes {
			x.Errorf("%v, and the kernel counts %d loss probes", causes, probes)
		}
		if early > 0 {
			return nil
		}
	}
	return errors.New("nothing was sent again before a timer did")
}
