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
	seen                    map[string]int // a packet as both hosts see it
}

// split sorts rows by host and direction, and checks the process of each.
func split(x *trial.Trial, t *lab.TCP, rows []*row.Row) map[string]*side {
	sides := map[string]*side{}
	for _, r := range rows {
		host, p := "server", t.Server
		if r.Get("rport").N == uint64(t.Port) {
			host, p = "client", t.Client
		}
		// The ACK of the peer's FIN may go out when MPTCP has let go of the socket.
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

// sessions: what one host sends the other one receives, packet by packet, and
// both hosts count as many.
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

// packets runs sessions and compares the packets of both hosts with each other, and with
// what the kernel counts.
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
	quiet, err := counters(x.World) // before the tool has ended; the kernel may still send something until then
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
		// Coming in, the kernel counts packets, whatever they are made of.
		got, again := sides[h+" in"].rows, most["TcpRetransSegs"]
		sent := func(c lab.Counters) int64 { return c["TcpOutSegs"] + c["TcpRetransSegs"] } // the first without the second
		x.Fail(between(out.segs, sent(least), sent(most), h+": segments out"))
		x.Fail(between(got, least["TcpInSegs"], most["TcpInSegs"], h+": packets in"))
		want := int64(s.Count * s.Send)
		if h == "server" {
			want = int64(s.Count * s.Recv)
		}
		// A machine that stands still sends segments again, and their bytes.
		if exact && (again == 0 && out.bytes != want || out.bytes < want || again == 0 && out.syns != int64(s.Count)) {
			x.Errorf("%s: %d bytes and %d SYNs, want %d and %d", h, out.bytes, out.syns, want, s.Count)
		}
	}
	if exact {
		relative(x, t, rows)
	}
	return rows, nil
}

// counters are those of both hosts.
func counters(w *lab.World) (all [2]lab.Counters, err error) {
	for i, h := range lab.TwoHosts {
		if all[i], err = w.Counters(h); err != nil {
			return all, err
		}
	}
	return all, nil
}

// between compares what was seen with what the kernel counts before the tool ends and
// after that.
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
