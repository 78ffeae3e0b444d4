// SPDX-License-Identifier: Apache-2.0

package tcpsnoop

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

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

// Live is the live cases.
var Live = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Network: lab.TCP6})},
	{Name: "large", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 1, Send: 300007, Recv: 53})},
	{Name: "big-ipv4", Hosts: lab.TwoHosts, Run: big(lab.TCP4)},
	{Name: "big-ipv6", Hosts: lab.TwoHosts, Run: big(lab.TCP6)},
	{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Close: lab.ByReset})},
	{Name: "closed-apart", Hosts: lab.TwoHosts, Run: closedApart},
	{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
	{Name: "older", Hosts: lab.TwoHosts, Run: older},
	{Name: "refused", Hosts: lab.TwoHosts, Run: refused},
	{Name: "same-ports", Hosts: lab.TwoHosts, Run: samePorts},
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

// big: packets of more than 64 KB, whose length IP's header cannot tell.
func big(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := x.World.BigTCP(n); errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		// Whether TCP comes to such packets depends on the machine standing still or not.
		for range 20 {
			rows, err := snoop(x, lab.Sessions{Count: 1, Send: 3000017, Recv: 53, Network: n}, true)
			if err != nil || lab.Emulated() || slices.ContainsFunc(rows, func(r *row.Row) bool { return r.Get("bytes").N > 1<<16 }) {
				return err
			}
		}
		return errors.New("no packet of more than 64 KB")
	}
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

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, err := snoop(x, lab.Sessions{Count: 7, Send: 101, Recv: 53, Network: lab.MPTCP4}, false)
	return err
}

// older: connections from before the tool have their process, and no relative
// numbers.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 101, Recv: 53, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	rows, err := packets(x, t, false)
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "seq_rel", "-")
	}
	return nil
}

// closedApart: the last FIN finds TIME_WAIT. A socket of the kernel's own sends its
// ACK, and the ACK is of the process that had the connection.
func closedApart(x *trial.Trial) error {
	before, err := counters(x.World)
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error {
		c, err := x.World.Dial("client", "server")
		if err != nil {
			return err
		}
		return errors.Join(c.CloseApart(), x.World.Closed())
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "pid", os.Getpid())
	}
	after, err := counters(x.World)
	if err != nil {
		return err
	}
	packets := int64(0)
	for i := range after {
		c := after[i].Since(before[i])
		packets += c["TcpInSegs"] + c["TcpOutSegs"] + c["TcpRetransSegs"]
	}
	// SYN, SYN and ACK, ACK; FIN, ACK, FIN, ACK at least: each leaves a host and comes to the other.
	if packets < 14 {
		x.Errorf("%d packets in and out, want 14 and more", packets)
	}
	x.Fail(trial.RowCount(len(rows), int(packets)))
	return nil
}

// refused: who refuses has sent no SYN, so its numbers are relative to nothing.
func refused(x *trial.Trial) error {
	const closed = 9
	c, err := lab.StartConnects(x.World, "client", "caller", lab.Attempt{
		Name: "refused", Network: lab.TCP4, Addr: lab.TCP4.At(x.World.Addr4("server"), closed), Want: unix.ECONNREFUSED})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := c.Run(); return err }, fmt.Sprint("--port=", closed))
	if err != nil {
		return err
	}
	resets := 0
	for _, r := range rows {
		if strings.Contains(trial.Value(r.Get("flags")), "R") {
			resets++
			x.Want(r, "seq_rel", "-")
			x.Want(r, "ack_rel", 1)
		} else {
			x.Want(r, "seq_rel", 0)
		}
	}
	if resets == 0 || resets == len(rows) {
		x.Errorf("%d of %d rows are resets, want some of both", resets, len(rows))
	}
	return nil
}

// samePorts: two connections have the same addresses and ports, and other
// processes.
func samePorts(x *trial.Trial) error {
	s := lab.Sessions{Send: 101, Recv: 53, Close: lab.ByReset, Port: 7001, From: lab.TCP4.At(x.World.Addr4("client"), 7003)}
	var all [2]*lab.TCP
	rows, err := x.Rows(func() (err error) {
		for i := range all {
			if all[i], err = lab.StartTCP(x.World, s); err != nil {
				return err
			}
			if _, err := all[i].Run(); err != nil {
				return err
			}
		}
		return nil
	}, "--port=7001")
	if err != nil {
		return err
	}
	var begins []int
	for i, r := range rows {
		if r.Get("flags").S == "S" && r.Get("dir").S == "out" {
			begins = append(begins, i)
		}
	}
	if len(begins) != 2 {
		return fmt.Errorf("%d SYNs went out, want 2", len(begins))
	}
	split(x, all[0], rows[:begins[1]])
	split(x, all[1], rows[begins[1]:])
	return nil
}
