// SPDX-License-Identifier: Apache-2.0

package solife

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyHold, hold)
	lab.Register(bodySend, send)
	lab.Register(bodyPing, func(c *lab.Child) error {
		if err := c.Await("go"); err != nil {
			return err
		}
		fd, err := lab.Socket(lab.Raw4)
		if err != nil {
			return err
		}
		defer lab.Close(fd)
		to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		return unix.Sendto(fd, []byte{8, 0, 0xf7, 0xfe, 0, 0, 0, 1}, 0, to)
	})
	lab.Register(bodyNames, names)
	return []trial.Case{
		{Name: "udp", Run: moved(lab.Load{Network: lab.UDP4, Count: 23, Size: 101})},
		{Name: "tcp6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777, Network: lab.TCP6, Close: lab.ByServer})},
		{Name: "think", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 3, Send: 10, Recv: 10, Think: linger})},
		{Name: "parallel", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 211, Send: 1000, Recv: 777, Parallel: 7})},
		{Name: "two-names", Run: twoNames},
		{Name: "unix-parallel", Run: sessions(lab.Sessions{Count: 5003, Send: 10, Recv: 7, Parallel: 7, Network: lab.Unix}), Slow: true},
		{Name: "unixgram-parallel", Run: sent(sending{Threads: 7, Sockets: 101})},
		{Name: "unixgram-shared", Run: sent(sending{Threads: 7, Sockets: 101, Shared: true})},
		{Name: "unixgram-many", Run: sent(sending{Threads: 7, Sockets: 5003}), Slow: true},
		{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 500, Recv: 300, Close: lab.ByReset})},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "uring", Run: uring},
		{Name: "udp6", Run: moved(lab.Load{Network: lab.UDP6, Count: 35, Size: 77, Batch: 7, Read: lab.Recvmmsg, Write: lab.Sendmmsg})},
		{Name: "peek", Run: moved(lab.Load{Network: lab.UDP4, Count: 13, Size: 31, Peek: 3, Again: 2})},
		{Name: "unixgram", Run: moved(lab.Load{Network: lab.UnixDgram, Count: 13, Size: 31})},
		{Name: "unixpacket", Run: moved(lab.Load{Network: lab.UnixPacket, Count: 13, Size: 31})},
		{Name: "splice", Run: moved(lab.Load{Network: lab.TCP4, Count: 13, Size: 1009, Write: lab.Splice, Read: lab.Splice})},
		{Name: "raw", Run: rawSocket},
		{Name: "dup", Run: outlived(dup)},
		{Name: "forked", Run: outlived(forked)},
		{Name: "killed", Run: outlived(killed)},
		{Name: "passed", Run: outlived(passed)},
		{Name: "dropped", Run: outlived(dropped)},
		{Name: "older", Hosts: lab.TwoHosts, Run: older(lab.TCP4, 1000, 777)},
		{Name: "older-unix", Run: older(lab.Unix, 1000, 777)},
		{Name: "older-idle", Run: older(lab.TCP6, 0, 0)},
		{Name: "older-idle-unix", Run: older(lab.Unix, 0, 0)},
		{Name: "names", Run: tooManyNames},
		{Name: "failed", Run: failed},
		{Name: "family", Run: onlyUnix},
	}
}

const bodyPing = "solife-ping"

// rawSocket: a raw socket has no port, although the kernel keeps its protocol
// in the port's field. So --lport does not match it.
func rawSocket(x *trial.Trial) error {
	for n, flags := range [][]string{{"--lport=1"}, nil} {
		p, err := x.World.Start("", "pinger", bodyPing, nil)
		if err != nil {
			return err
		}
		if err := x.Attach(flags...); err != nil {
			return err
		}
		if err := errors.Join(p.Tell("go"), p.Wait()); err != nil {
			return err
		}
		rows, err := x.Exactly(n)
		if err != nil {
			return fmt.Errorf("%v: %w", flags, err)
		}
		for _, r := range rows {
			x.Want(r, "pid", p.PID)
			x.Want(r, "type", "raw")
			x.Want(r, "tx_bytes", 8)
			x.Want(r, "laddr", "-")
			x.Want(r, "lport", "-")
		}
	}
	return nil
}

const bodyNames = "solife-names"

const callerName, serverName = "@solife-caller", "@solife-server"

// names connects a socket with a name to another one of this process.
func names(c *lab.Child) error {
	l, _, err := lab.Listen(lab.Unix, serverName, 1)
	if err != nil {
		return err
	}
	w, _, err := lab.Bind(lab.Unix, callerName)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Report(true), c.Await("go"), unix.Connect(w, &unix.SockaddrUnix{Name: serverName})); err != nil {
		return err
	}
	r, err := lab.Accept(l)
	if err != nil {
		return err
	}
	_, err = unix.Write(w, make([]byte, 101))
	return errors.Join(err, lab.Close(w), lab.Close(r), lab.Close(l))
}

// twoNames: both ends of a connection are bound to a name, and both rows have both.
func twoNames(x *trial.Trial) error {
	p, err := x.World.Start("", "named", bodyNames, nil)
	if err != nil {
		return err
	}
	var ready bool
	if err := p.Expect(&ready); err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if err := errors.Join(p.Tell("go"), p.Wait()); err != nil {
		return err
	}
	rows, err := x.Exactly(2)
	if err != nil {
		return err
	}
	for _, r := range rows {
		local, peer := serverName, callerName
		if r.Get("tx_bytes").N == 101 {
			local, peer = peer, local
		}
		x.Want(r, "laddr", local)
		x.Want(r, "raddr", peer)
	}
	return nil
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 1000, Recv: 777, Network: lab.MPTCP4})(x)
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 1000, Recv: 777, Uring: true})(x)
}

// moved makes a case of one connection with both ends in one process.
func moved(l lab.Load) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := x.Attach(); err != nil {
			return err
		}
		o, err := lab.StartIO(x.World, "", "mover", l)
		if err != nil {
			return err
		}
		if _, err := o.Run(); err != nil {
			return err
		}
		rows, err := x.Exactly(2)
		if err != nil {
			return err
		}
		var sent, read int
		for _, r := range rows {
			x.Want(r, "pid", o.PID)
			x.Want(r, "comm", "mover")
			sent += int(r.Get("tx_bytes").N)
			read += int(r.Get("rx_bytes").N)
			if r.Get("tx_bytes").N != 0 && r.Get("rx_bytes").N != 0 {
				x.Errorf("one end wrote and read: %s", trial.Dump(r))
			}
			if d := r.Get("duration_ms"); d.Kind == row.Null || d.N == 0 {
				x.Errorf("no duration: %s", trial.Dump(r))
			}
			if l.Network.Family() != unix.AF_UNIX {
				end := map[bool]int{true: o.Ends[0].WriterPort, false: o.Ends[0].ReaderPort}[r.Get("tx_bytes").N > 0]
				x.Want(r, "lport", end)
			}
		}
		if want := l.Count * l.Size; sent != want || read != want {
			x.Errorf("%d bytes written and %d read, want %d of each", sent, read, want)
		}
		return nil
	}
}

// sent makes a case of UNIX datagram sockets whose first known event is a send,
// and of their receivers.
func sent(s sending) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if host.TracepointsPreempt() {
			return trial.Skip("known defect: where this kernel skips the run that sees a socket's end, the next socket at its address is added to it (see the README)")
		}
		if err := x.Attach("--buffer=16M"); err != nil { // they come faster than a busy machine reads
			return err
		}
		p, err := x.World.Start("", "sender", bodySend, s)
		if err != nil {
			return err
		}
		if err := p.Wait(); err != nil {
			return err
		}
		sockets, each := s.Threads*s.Sockets, message
		if s.Shared {
			sockets, each = s.Sockets, s.Threads*message
		}
		x.Await(sockets + s.Threads)
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		received := map[string]int{}
		for _, r := range rows {
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", "sender")
			x.Want(r, "type", "dgram")
			x.Want(r, "raddr", "-")
			if d := r.Get("duration_ms"); d.Kind == row.Null || d.N == 0 {
				x.Errorf("no duration: %s", trial.Dump(r))
			}
			if name := trial.Value(r.Get("laddr")); name != "-" {
				received[name]++
				x.Want(r, "tx_bytes", 0)
				x.WantSum(r, "rx_bytes", s.Sockets*message, message)
				continue
			}
			x.WantSum(r, "tx_bytes", each, message)
			x.Want(r, "rx_bytes", 0)
			sockets--
		}
		x.Fail(trial.Fewer(-sockets, 0, "%d rows too few of sockets that sent", sockets))
		for i := range s.Threads {
			if name := fmt.Sprint(receiver, i); received[name] != 1 {
				x.Errorf("%d rows of %s, want 1", received[name], name)
			}
		}
		x.NoneLost()
		return nil
	}
}

// tooManyNames: names that do not fit into the map are counted. Their sessions
// are still shown.
func tooManyNames(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 47, Send: 100, Recv: 77, Hold: true, Network: lab.Unix})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	if err := x.Attach("--memory=64K", "--stats"); err != nil {
		return err
	}
	if _, err := t.Run(); err != nil {
		return err
	}
	ends := 2 * t.Sessions.Count // each with one name
	x.Await(ends)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	names := x.Report.Capacity("names") // far fewer than names or sessions
	named := 0
	for _, r := range rows {
		for _, id := range []string{"laddr", "raddr"} {
			if r.Get(id).Kind != row.Null {
				named++
				x.Want(r, id, t.Sessions.Path)
			}
		}
	}
	if len(rows) != ends || named != names {
		x.Errorf("%d rows with %d names, want %d with %d", len(rows), named, ends, names)
	}
	if got := x.Report.Losses[tool.LossSpan]; got != uint64(ends-names) {
		x.Errorf("%d names lost, want %d", got, ends-names)
	}
	return nil
}

// outlived makes a case of sessions of every kind of socket that end with their
// last descriptor.
func outlived(h how) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := x.Attach(); err != nil {
			return err
		}
		each := 2
		if h == passed || h == dropped {
			each = 4 // and the pair that it went through
		}
		type holder struct {
			holding
			held
			late, early, rows int
		}
		holders := map[int]*holder{} // held by the process and by its child
		var all []*holder
		for _, k := range []holding{
			{lab.TCP4, "127.0.0.1:0", h}, {lab.UDP6, "[::1]:0", h}, {lab.Unix, "@solife-held", h}, {lab.UnixDgram, "@solife-gram", h},
		} {
			p, err := x.World.Start("", "holder", bodyHold, k)
			if err != nil {
				return err
			}
			out := &holder{holding: k}
			if err := p.Expect(&out.held); err != nil {
				return fmt.Errorf("%s: %w", k.Network, err)
			}
			if err := p.Wait(); err != nil {
				return err
			}
			holders[p.PID], holders[out.Writer] = out, out
			all = append(all, out)
		}
		x.Await(each * len(all))
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		for _, r := range rows {
			k := holders[int(r.Get("pid").N)]
			if k == nil {
				x.Errorf("a process that is none of ours: %s", trial.Dump(r))
				continue
			}
			k.rows++
			d := int64(r.Get("duration_ms").N)
			switch {
			case r.Get("tx_bytes").N == message:
				k.late++
				x.Want(r, "pid", k.Writer)
				x.Want(r, "rx_bytes", 0)
				if d < k.NS {
					x.Errorf("%s: the session took %d ns, want at least %d", k.Network, d, k.NS)
				}
			case r.Get("rx_bytes").N == message:
				k.early++
				x.Want(r, "tx_bytes", 0)
				if d > k.Early {
					x.Errorf("%s: the end that was closed at once took %d ns, want at most %d", k.Network, d, k.Early)
				}
			}
		}
		for _, k := range all {
			if k.rows != each || k.late != 1 || k.early != 1 {
				x.Errorf("%s: %d rows, want %d; %d of the end that was held and %d of the other, want one of each",
					k.Network, k.rows, each, k.late, k.early)
			}
		}
		return nil
	}
}

// older makes a case of sessions that were open before the tool. Sessions without
// traffic are known only from the walk.
func older(n lab.Network, send, recv int) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, lab.Sessions{Count: 17, Send: send, Recv: recv, Hold: true, Network: n, Path: "@solife-older"})
		if err != nil {
			return err
		}
		if err := t.Open(); err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		if _, err := t.Run(); err != nil {
			return err
		}
		rows, err := seen(x, t)
		for _, r := range rows {
			x.Want(r, "duration_ms", "-")
			if c := r.Get("seen_ms"); c.Kind == row.Null || c.N == 0 {
				x.Errorf("no seen_ms in %s", trial.Dump(r))
			}
		}
		return err
	}
}

// failed: a failed connect and a listener are not sessions. A timer ends some of the
// connects. A tool that misses this would show them as sessions when they are closed.
func failed(x *trial.Trial) error { return x.Timed(func() error { return failedOnce(x) }) }

func failedOnce(x *trial.Trial) error {
	t, attempts, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	c, err := lab.StartConnects(x.World, "", "clumsy", attempts...)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	want, timed := map[string]int{}, map[string]int{}
	n := 0
	for _, a := range attempts {
		switch {
		case a.Want == 0:
			want[string(a.Network)]++
			n++
		case a.Want == unix.ETIMEDOUT:
			timed[string(a.Network)]++
		}
	}
	x.Await(n)
	if err := t.End(); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "pid", c.PID)
		name := trial.Value(r.Get("proto"))
		if ip := trial.Value(r.Get("ip")); ip != "-" {
			name += ip
		}
		want[name]--
	}
	for name, n := range want {
		switch {
		case n < 0 && -n <= timed[name]:
			x.Fail(&trial.Missing{N: -n, Text: fmt.Sprintf("%s: the end of %d connects that timed out was not seen", name, -n)})
		case n != 0:
			x.Errorf("%s: %d sessions too few", name, n)
		}
	}
	return nil
}

// onlyUnix: with a filter by family, hooks of other families are not attached.
func onlyUnix(x *trial.Trial) error {
	if err := x.Attach("--family=unix"); err != nil {
		return err
	}
	for _, c := range x.Choices {
		if c.Point == "release" || c.Point == "state" {
			x.Errorf("point %s is attached for UNIX sockets alone", c.Point)
		}
	}
	if _, err := x.Detach(); err != nil {
		return err
	}
	if err := x.Attach("--family=inet"); err != nil {
		return err
	}
	for _, c := range x.Choices {
		if c.Point == "unixend" {
			x.Errorf("point %s is attached for IPv4 alone", c.Point)
		}
	}
	_, err := x.Detach()
	return err
}
