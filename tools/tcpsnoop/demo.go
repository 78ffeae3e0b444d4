// SPDX-License-Identifier: Apache-2.0

package tcpsnoop

import (
	"fmt"
	"strings"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w, lab.Sessions{Send: 100, Recv: 5000, ClientComm: "browser", ServerComm: "web"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Network: lab.TCP6})},
}

// side is the packets of one host in one direction.
type side struct {
	rows, segs, bytes, syns int64
	seen                    map[string]int // packets, by the values that both hosts see
}

// split sorts rows by host and direction, and checks the process of each.
func split(x *trial.Trial, t *lab.TCP, rows []*row.Row) map[string]*side {
	sides := map[string]*side{}
	for _, r := range rows {
		host, p := "server", t.Server
		if r.Get("rport").N == uint64(t.Port) {
			host, p = "client", t.Client
		}
		// MPTCP may have released the socket before the ACK of the peer's FIN is sent.
		last := t.Sessions.Network == lab.MPTCP4 && r.Get("flags").S == "." && r.Get("bytes").N == 0
		if !last || r.Get("pid").Kind != row.Null {
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", p.Comm)
		}
		x.Want(r, "netns", x.World.Netns(host))
		key := host + " " + r.Get("dir").S
		s := sides[key]
		if s == nil {
			s = &side{seen: map[string]int{}}
			sides[key] = s
		}
		flags := r.Get("flags").S
		s.segs += int64(r.Get("gso_segs").N)
		s.bytes += int64(r.Get("bytes").N)
		if strings.Contains(flags, "S") {
			s.syns++
		}
		s.rows++
		s.seen[fmt.Sprint(flags, r.Get("seq").N, r.Get("ack").N, r.Get("bytes").N, r.Get("window").N)]++
	}
	return sides
}

// sessions: each packet that one host sends is received by the other one, and
// the kernel's counters of both hosts agree.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error { _, err := snoop(x, s, true); return err }
}

func snoop(x *trial.Trial, s lab.Sessions, exact bool) ([]*row.Row, error) {
	t, err := lab.StartTCP(x.World, s)
	if err != nil {
		return nil, err
	}
	return packets(x, t, exact)
}

// packets runs sessions. It compares the packets of both hosts with each other and with
// the kernel's counters.
func packets(x *trial.Trial, t *lab.TCP, exact bool) ([]*row.Row, error) {
	s := t.Sessions
	if err := x.Attach("--port", fmt.Sprint(t.Port)); err != nil {
		return nil, err
	}
	before, err := counters(x.World)
	if err != nil {
		return nil, err
	}
	if _, err := t.Run(); err != nil {
		return nil, err
	}
	if err := x.World.Closed(); err != nil {
		return nil, err
	}
	quiet, err := counters(x.World) // before the tool's end; until then the kernel may send more
	if err != nil {
		return nil, err
	}
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	sides := split(x, t, rows)
	for i, h := range lab.TwoHosts {
		other := lab.TwoHosts[1-i]
		out, in := sides[h+" out"], sides[other+" in"]
		if out == nil || in == nil {
			return nil, fmt.Errorf("no packets from %s", h)
		}
		for k, n := range out.seen {
			x.Fail(trial.Fewer(in.seen[k], n, "%s sent %q %d times, %s received it %d times", h, k, n, other, in.seen[k]))
		}
		after, err := x.World.Counters(h)
		if err != nil {
			return nil, err
		}
		least, most := quiet[i].Since(before[i]), after.Since(before[i])
		// For received packets the kernel counts packets, not segments.
		got, again := sides[h+" in"].rows, most["TcpRetransSegs"]
		sent := func(c lab.Counters) int64 { return c["TcpOutSegs"] + c["TcpRetransSegs"] } // OutSegs excludes retransmissions
		x.Fail(between(out.segs, sent(least), sent(most), h+": segments out"))
		x.Fail(between(got, least["TcpInSegs"], most["TcpInSegs"], h+": packets in"))
		want := int64(s.Count * s.Send)
		if h == "server" {
			want = int64(s.Count * s.Recv)
		}
		// A machine that stalls retransmits segments, and their bytes count again.
		if exact && (again == 0 && out.bytes != want || out.bytes < want || again == 0 && out.syns != int64(s.Count)) {
			x.Errorf("%s: %d bytes and %d SYNs, want %d and %d", h, out.bytes, out.syns, want, s.Count)
		}
	}
	if exact {
		relative(x, t, rows)
	}
	return rows, nil
}

// counters are the kernel's counters of both hosts.
func counters(w *lab.World) (all [2]lab.Counters, err error) {
	for i, h := range lab.TwoHosts {
		if all[i], err = w.Counters(h); err != nil {
			return all, err
		}
	}
	return all, nil
}

// between compares the rows with the kernel's counters before and after the end of the
// tool.
func between(got, least, most int64, of string) error {
	return trial.Fewer(int(got), int(min(max(got, least), most)), "%s: %d; the kernel counts %d to %d", of, got, least, most)
}

// relative: sequence numbers count from the SYN.
func relative(x *trial.Trial, t *lab.TCP, rows []*row.Row) {
	for _, r := range rows {
		seq, flags := r.Get("seq_rel").N, r.Get("flags").S
		send := uint64(t.Sessions.Recv)
		if (r.Get("rport").N == uint64(t.Port)) == (r.Get("dir").S == "out") {
			send = uint64(t.Sessions.Send) // sent by the client
		}
		switch {
		case strings.Contains(flags, "S"):
			x.Want(r, "seq_rel", 0)
			if strings.Contains(flags, ".") {
				x.Want(r, "ack_rel", 1)
			}
		case strings.Contains(flags, "F"):
			x.Want(r, "seq_rel", 1+send-r.Get("bytes").N)
		case seq < 1 || seq > send+2:
			x.Errorf("sequence number %d in %s", seq, trial.Dump(r))
		}
	}
}
