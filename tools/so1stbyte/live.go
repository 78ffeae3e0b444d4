// SPDX-License-Identifier: Apache-2.0

package so1stbyte

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyMany, many)
	lab.Register(bodyReuse, func(c *lab.Child) error {
		if err := c.Await("go"); err != nil {
			return err
		}
		return c.Report(reuse(200))
	})
	return []trial.Case{
		{Name: "events", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 100, Recv: 1000, Think: think})},
		{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 100, Recv: 1000, Network: lab.TCP6})},
		{Name: "connect-and-wait", Hosts: lab.TwoHosts, Run: apart},
		{Name: "reads", Run: reads},
		{Name: "uring", Run: uring},
		{Name: "mptcp", Run: mptcp},
		{Name: "pending", Hosts: lab.TwoHosts, Run: pending},
		{Name: "pending-histogram", Hosts: lab.TwoHosts, Run: pendingHistogram},
		{Name: "unanswered", Hosts: lab.TwoHosts, Run: unanswered},
		{Name: "reused", Run: reused},
		{Name: "unreachable", Run: unreachable},
		{Name: "few", Run: few},
	}
}

// apart: the row separates a connect that takes a second, because its first SYN
// is lost, from a server that takes 50 ms.
func apart(x *trial.Trial) error {
	const port, second = 4817, uint64(time.Second)
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 2, Send: 100, Recv: 1000, Think: think, Port: port})
	if err != nil {
		return err
	}
	loss, err := lab.StartLoss(lab.Loss{To: port, Flags: lab.SYN, Count: 1})
	if err != nil {
		return err
	}
	defer loss.Close()
	rows, res, err := trial.RowsOf(x, 2, t.Run, "--events")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 2); err != nil {
		return err
	}
	for i, r := range rows {
		own := res.Client.Sessions[i]
		connect, wait := r.Get("connect_us").N, r.Get("wait_us").N
		// The client's stopwatch runs a little longer for each part.
		least := [...]uint64{second, 0}[i]
		if connect < least || connect > uint64(own.ConnectNS) {
			x.Errorf("connect %d took %d ns, want from %d to %d", i+1, connect, least, own.ConnectNS)
		}
		if most := uint64(own.FirstNS) - least; wait < uint64(think) || wait > most {
			x.Errorf("wait %d took %d ns, want from %d to %d", i+1, wait, think, most)
		}
	}
	return nil
}

// sessions makes a case of sessions by --events, compared with the client's own
// stopwatch.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, s)
		if err != nil {
			return err
		}
		rows, res, err := trial.RowsOf(x, s.Count, t.Run, "--events")
		if err != nil {
			return err
		}
		byPort := map[int]lab.Session{}
		for _, c := range res.Client.Sessions {
			byPort[c.ClientPort] = c
		}
		for _, r := range rows {
			x.Want(r, "pid", t.Client.PID)
			x.Want(r, "comm", t.Client.Comm)
			x.Want(r, "raddr", x.World.Addr(t.Server.Host, t.Sessions.Network))
			x.Want(r, "rport", t.Port)
			c := byPort[int(r.Get("lport").N)]
			connect, wait, total := r.Get("connect_us").N, r.Get("wait_us").N, r.Get("latency_us").N
			if connect+wait != total || total == 0 || total > uint64(c.FirstNS) || connect > uint64(c.ConnectNS) {
				x.Errorf("connect %d and wait %d are %d ns; by the client's own stopwatch %d and %d", connect, wait, total, c.ConnectNS, c.FirstNS)
			}
			if wait < uint64(s.Think) {
				x.Errorf("wait %d ns, want %v or more", wait, s.Think)
			}
			delete(byPort, int(r.Get("lport").N))
		}
		x.Fail(trial.RowCount(len(rows), s.Count))
		if len(rows) >= s.Count && len(byPort) > 0 {
			x.Errorf("%d connections have no row", len(byPort))
		}
		return nil
	}
}

// reads: every way to read, also after the peer has closed, and connections
// without a read.
func reads(x *trial.Trial) error {
	calls := []lab.Call{lab.Read, lab.Readv, lab.Recv, lab.Recvfrom, lab.Recvmsg, lab.Recvmmsg, lab.Splice}
	if lab.UringSupported() == nil {
		calls = append(calls, lab.UringRecv, lab.UringRead)
	}
	var all []lab.FirstByte
	for _, c := range calls {
		for _, n := range []lab.Network{lab.TCP4, lab.TCP6} {
			all = append(all, lab.FirstByte{Network: n, Read: c}, lab.FirstByte{Network: n, Read: c, Late: true}, lab.FirstByte{Network: n})
			// Sockets of servers, at kernel addresses of sockets
			// that had connected.
			all = append(all, lab.FirstByte{Network: n, Read: c, Served: true}, lab.FirstByte{Network: n, Read: c, Served: true})
		}
		if c != lab.Splice {
			all = append(all, lab.FirstByte{Network: lab.UDP4, Read: c}, lab.FirstByte{Network: lab.UDP4}, lab.FirstByte{Network: lab.UDP6, Read: c})
		}
	}
	f, err := lab.StartFirstBytes(x.World, "", "reader", all...)
	if err != nil {
		return err
	}
	if err := x.Attach("--events"); err != nil {
		return err
	}
	out, err := f.Run()
	if err != nil {
		return err
	}
	var want []lab.FirstByte
	none := 0 // TCP connections whose client ends without a read
	for _, o := range out {
		if o.Read != "" && !o.Served {
			want = append(want, o)
		} else if o.Network.Stream() {
			none++
		}
	}
	seen, err := x.Exactly(len(want) + none)
	if err != nil {
		return err
	}
	var rows []*row.Row
	for _, r := range seen {
		if r.Get("outcome").Kind == row.Null {
			rows = append(rows, r)
		} else {
			x.Want(r, "outcome", "no byte")
		}
	}
	if len(rows) != len(want) {
		return fmt.Errorf("%d first bytes, want %d", len(rows), len(want))
	}
	for i, o := range want {
		x.Want(rows[i], "pid", f.PID)
		if o.Port != 0 {
			x.Want(rows[i], "lport", o.Port)
		}
		for _, id := range []string{"connect_us", "wait_us"} {
			if rows[i].Get(id).Kind == row.Null {
				x.Errorf("%s %s: no %s", o.Network, o.Read, id)
			}
		}
	}
	return nil
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 100, Recv: 1000, Uring: true})(x)
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 100, Recv: 1000, Network: lab.MPTCP4})(x)
}

// reused: a socket that never connected has no first byte, even if a connected
// socket was at its kernel address before.
func reused(x *trial.Trial) error {
	p, err := x.World.Start("", "reuser", bodyReuse, nil)
	if err != nil {
		return err
	}
	var received int
	rows, err := x.Rows(func() error { return p.Call("go", &received) }, "--events", fmt.Sprint("--pid=", p.PID))
	if err != nil {
		return err
	}
	if len(rows) > 0 || received < 100 {
		x.Errorf("%d rows of %d sockets that never connected, want none", len(rows), received)
	}
	return p.Wait()
}

// unreachable: errors that are read together with the sent data do not count as
// a first byte.
func unreachable(x *trial.Trial) error {
	f, err := lab.StartRefused(x.World, "sender", 3, 101)
	if err != nil {
		return err
	}
	rows, err := x.Rows(f.Run, "--events")
	if len(rows) != 0 {
		x.Errorf("%d rows of a socket that received nothing, want 0", len(rows))
	}
	return err
}

const bodyMany = "so1stbyte-many"

// manySockets are connected at the same time.
const manySockets = 23

// many connects UDP sockets, all before the first one gets a byte, and reads one
// byte from each. When these are closed, it repeats this with other sockets.
func many(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	for range 2 {
		var fds []int
		for range manySockets {
			l, port, err := lab.Listen(lab.UDP4, "127.0.0.1:0", 1)
			if err != nil {
				return err
			}
			fd, err := lab.Connect(lab.UDP4, fmt.Sprint("127.0.0.1:", port))
			if err != nil {
				return err
			}
			from, err := unix.Getsockname(fd)
			if err != nil {
				return err
			}
			if err := unix.Sendto(l, []byte("x"), 0, from); err != nil {
				return err
			}
			lab.Close(l)
			fds = append(fds, fd)
		}
		for i, fd := range fds {
			if i%2 == 0 { // the others end without a read
				if _, err := unix.Read(fd, make([]byte, 1)); err != nil {
					return err
				}
			}
			lab.Close(fd)
		}
	}
	return c.Report(true)
}

// few: more sockets wait than the map has room for. Each is shown or counted.
// Sockets that end free their entry.
func few(x *trial.Trial) error {
	flag, err := x.Few()
	if err != nil {
		return err
	}
	for _, flags := range [][]string{{}, {flag}} {
		p, err := x.World.Start("", "many", bodyMany, nil)
		if err != nil {
			return err
		}
		var done bool
		rows, err := x.Rows(func() error { return p.Call("go", &done) }, append(flags, "--events", fmt.Sprint("--pid=", p.PID))...)
		if err != nil {
			return err
		}
		const read = manySockets/2 + 1
		lost := int(x.Report.Losses[tool.LossSpan])
		switch {
		case len(flags) == 0:
			x.Fail(trial.RowCount(len(rows), 2*read))
			x.NoneLost()
		case len(rows) > 2*read || len(rows)+lost < 2*read || lost > 4*manySockets:
			x.Errorf("maps of a few entries: %d shown and %d lost of %d", len(rows), lost, 2*read)
		case len(rows) < 2:
			x.Errorf("%d shown: those that have ended did not make room", len(rows))
		}
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return nil
}
