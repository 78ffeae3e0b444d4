// SPDX-License-Identifier: Apache-2.0

package tcpwin

import (
	"time"

	"seine/internal/lab"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, err := lab.StartTCP(w, lab.Sessions{Send: 1 << 20, Recv: 1, ClientComm: "backup", ServerComm: "store"})
		if err != nil {
			return err
		}
		return t.RunLossy(lab.Loss{To: t.Port, Data: 1, Skip: 9, Count: 1})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.TCP4)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.TCP6)},
}

// reno is in every kernel, and it does not change the threshold until there is a
// loss.
const reno = "reno"

// segments is the number of segments that a host received in established sessions that
// end by a reset: all except those of the handshake and those that came after the
// socket's end.
func segments(counted map[string]lab.Counters, host string, sessions int64) int64 {
	c := counted[host]
	n := c["TcpInSegs"] - c["TcpExtTCPBacklogCoalesce"] // those are one for their socket
	refused := counted["server"]["TcpOutRsts"]          // by the server, to which the client has no socket either
	if host == "client" {
		return n - sessions - refused - (c["TcpOutRsts"] - sessions) // the answer to the SYN
	}
	return n - 2*sessions - refused // the SYN and the first ACK
}

// sessions: one row for each segment that comes in, and for each end that is
// established.
func sessions(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		for _, h := range lab.TwoHosts {
			if err := x.World.Sysctl(h, "net.ipv4.tcp_congestion_control", reno); err != nil {
				return err
			}
		}
		t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 20001, Recv: 50003, Close: lab.ByReset, Network: network})
		if err != nil {
			return err
		}
		began := time.Now()
		if err := x.Attach(); err != nil {
			return err
		}
		before := map[string]lab.Counters{}
		for _, h := range lab.TwoHosts {
			if before[h], err = x.World.Counters(h); err != nil {
				return err
			}
		}
		if _, err := t.Run(); err != nil {
			return err
		}
		if err := x.World.Closed(); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		// A slow machine may send segments again that were not lost: the kernel counts them.
		again, counted := map[string]int64{}, map[string]lab.Counters{}
		for _, h := range lab.TwoHosts {
			now, err := x.World.Counters(h)
			if err != nil {
				return err
			}
			counted[h] = now.Since(before[h])
			again[h] = counted[h]["TcpRetransSegs"]
		}
		count, since := map[string]int64{}, map[string]uint64{}
		var queued uint64
		for _, r := range rows {
			host, p := "server", t.Server
			if r.Get("rport").N == uint64(t.Port) {
				host, p = "client", t.Client
			}
			x.Want(r, "pid", p.PID)
			count[host+" "+r.Get("event").S]++
			if n := r.Get("snd_cwnd").N; n < 1 || n > 1000 {
				x.Errorf("snd_cwnd is %d", n)
			}
			x.Want(r, "cong", reno)
			if again[host] == 0 { // nothing was lost
				x.Want(r, "snd_ssthresh", 1<<31-1)
			}
			if r.Get("sk_sndbuf").N == 0 || r.Get("rcv_wnd").N == 0 || r.Get("event").S == "rcv" && r.Get("srtt_us").N == 0 {
				x.Errorf("no sk_sndbuf, rcv_wnd or srtt_us in %s", trial.Dump(r))
			}
			// Two processors may write rows in another order than they read
			// the clock, but not for one socket.
			sock := trial.Values(r, "pid", "lport", "rport")
			if at := r.Get("time_us").N; at < since[sock] || at > uint64(time.Since(began)) {
				x.Errorf("at %d after %d ns", at, since[sock])
			} else {
				since[sock] = at
			}
			queued = max(queued, r.Get("sk_wmem_queued").N)
		}
		if queued == 0 {
			x.Errorf("nothing was ever queued")
		}
		for _, h := range lab.TwoHosts {
			for event, n := range map[string]int64{"rcv": segments(counted, h, 7), "new": 7} {
				got := count[h+" "+event]
				x.Fail(trial.Fewer(int(got), int(n), "%s: %d %s, want %d", h, got, event, n))
			}
			// A packet may have several segments.
			if got := count[h+" retrans"]; (got > 0) != (again[h] > 0) || got > again[h] {
				x.Errorf("%s: %d packets sent again, and the kernel counts %d segments", h, got, again[h])
			}
		}
		x.NoneLost(tool.LossOwner)
		return nil
	}
}
