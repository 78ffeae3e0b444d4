// SPDX-License-Identifier: Apache-2.0

package tcpnagle

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyRecovery, recovering)
	return []trial.Case{
		{Name: "nagle", Run: nagle},
		{Name: "window", Run: window},
		{Name: "recovery", Hosts: lab.TwoHosts, Run: recovery},
		{Name: "xmit", Run: xmit},
		{Name: "comm", Run: ofOne},
	}
}

// ofOne: writes of another process are left out, with and without --by comm.
func ofOne(x *trial.Trial) error {
	for _, by := range []string{"--by=state", "--by=state,comm"} {
		if err := x.Attach("--comm=writer", by); err != nil {
			return err
		}
		var out []lab.Written // of the last
		for _, comm := range []string{"other", "writer"} {
			p, err := lab.StartWriter(x.World, comm, lab.TCP4, mix...)
			if err != nil {
				return err
			}
			if out, err = p.Run(); err != nil {
				return err
			}
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		sends, held := parts(rows)
		asWritten(x, out, sends, held)
	}
	return nil
}

// nagle: the acknowledgements of a write are lost, so the next small write has
// to wait. With TCP_NODELAY it does not.
func nagle(x *trial.Trial) error {
	for _, off := range []bool{false, true} {
		p, err := lab.StartWriter(x.World, "writer", lab.TCP4, lab.Writes{Count: 2, Size: 100, NoDelay: off, Hold: hold})
		if err != nil {
			return err
		}
		// The limit is high enough for acknowledgements of retransmissions: the
		// machine may stand still for three seconds between the writes. An
		// acknowledgement that comes with data is not lost.
		loss, err := lab.StartLoss(lab.Loss{From: p.Port, Flags: lab.ACK, Empty: true, Count: 5})
		if err != nil {
			return err
		}
		defer loss.Close()
		var out []lab.Written
		rows, err := x.Rows(func() (err error) { out, err = p.Run(); return err }, "--lport", fmt.Sprint(p.Own))
		if err != nil {
			return err
		}
		sends, held := parts(rows)
		state := map[bool]string{false: "ON", true: "OFF"}[off]
		if len(sends) != 1 || sends[state] == nil {
			return fmt.Errorf("sends %v, want those in state %s", sends, state)
		}
		x.Want(sends[state], "count", 2)
		by := state + " nagle"
		if out[0].RTO && held[state+" cwnd"] != nil { // a timeout closes that window
			by = state + " cwnd"
		} else if off {
			by = ""
		}
		if by != "" {
			once(x, by, held[by], out[0])
			delete(held, by)
		}
		for k := range held {
			x.Errorf("held by %s", k)
		}
	}
	return nil
}

// window: data that do not fit into the receiver's or the congestion window are
// not held by Nagle.
func window(x *trial.Trial) error {
	p, err := lab.StartWriter(x.World, "writer", lab.TCP4, lab.Writes{Size: 50000, Fill: true, NoDelay: true})
	if err != nil {
		return err
	}
	var out []lab.Written
	rows, err := x.Rows(func() (err error) { out, err = p.Run(); return err }, "--lport", fmt.Sprint(p.Own))
	if err != nil {
		return err
	}
	sends, held := parts(rows)
	if r := sends["OFF"]; r == nil || len(sends) != 1 {
		return fmt.Errorf("sends %v, want those in state OFF", sends)
	}
	x.Want(sends["OFF"], "count", out[0].Count)
	if held["OFF rwnd"] == nil && held["OFF cwnd"] == nil {
		x.Errorf("nothing was held by a window: %v", held)
	}
	for k := range held {
		if k == "OFF nagle" || k == "OFF cork" {
			x.Errorf("%d held by %s", held[k].Count, k)
		}
	}
	return nil
}

const bodyRecovery = "tcpnagle-recovery"

// recoverySmall is the size of the packet that is lost, and of the one that waits.
const recoverySmall = 100

// recovering writes a small packet, which is lost, and then five full ones at once,
// which arrive. When the first has been retransmitted, it writes a small one, which
// waits for it. It reports whether the congestion window had room before and after
// that.
func recovering(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	fd, err := lab.Connect(lab.TCP4, addr)
	if err != nil {
		return err
	}
	defer lab.Close(fd)
	var info *unix.TCPInfo
	until := func(is func(*unix.TCPInfo) bool) error {
		for {
			info, err = unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
			if err != nil || is(info) {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	now := func(*unix.TCPInfo) bool { return true }
	room := func() bool { return info.Unacked-info.Sacked-info.Lost+info.Retrans < info.Snd_cwnd }
	noDelay := func(on int) func() error {
		return func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, on) }
	}
	var rooms [2]bool
	for _, step := range []func() error{
		func() error { return c.Await("go") },
		func() error { return until(now) },
		noDelay(1),
		func() error { return lab.SendAll(fd, make([]byte, recoverySmall)) },
		func() error { return lab.SendAll(fd, make([]byte, 5*int(info.Snd_mss))) },
		func() error { return until(func(i *unix.TCPInfo) bool { return i.Sacked == 5 && i.Retrans == 1 }) },
		noDelay(0),
		func() error { return until(now) },
		func() error { rooms[0] = room(); return nil },
		func() error { return lab.SendAll(fd, make([]byte, recoverySmall)) },
		func() error { return until(now) },
		func() error { rooms[1] = room(); return nil },
		func() error { return c.Report(rooms) },
		func() error { return c.Await("end") },
		func() error {
			return until(func(i *unix.TCPInfo) bool { return i.Unacked == 0 && i.Notsent_bytes == 0 })
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.Report(true)
}

// recovery: segments that the peer has, or that are lost, do not fill the congestion
// window. A timer sends the lost segment, and with it the held data.
func recovery(x *trial.Trial) error {
	return x.Timed(func() error { return recoveryOnce(x) })
}

func recoveryOnce(x *trial.Trial) error {
	s, err := lab.StartLate(x.World, lab.Late{})
	if err != nil {
		return err
	}
	p, err := x.World.Start("client", "writer", bodyRecovery, s.Addr)
	if err != nil {
		return err
	}
	// The first packet and its retransmissions, until the waiting one is written.
	// There are more only if the machine stands still, because each timeout is twice
	// as long as the last.
	loss, err := lab.StartLoss(lab.Loss{To: s.Port, Data: 1, Most: recoverySmall, Count: 6})
	if err != nil {
		return err
	}
	defer loss.Close()
	var rooms [2]bool
	var done bool
	rows, err := x.Rows(func() error {
		return errors.Join(p.Call("go", &rooms), loss.Close(), p.Call("end", &done))
	}, "--rport", fmt.Sprint(s.Port))
	if err != nil {
		return err
	}
	_, held := parts(rows)
	by := "ON nagle"
	if !rooms[0] && !rooms[1] || rooms[0] != rooms[1] && held["ON cwnd"] != nil {
		by = "ON cwnd" // the machine stood still until there was a timeout
	}
	if len(held) == 0 {
		x.Fail(&trial.Missing{N: 1, Text: "nothing was held, want one by " + by})
	} else if h := held[by]; h == nil || h.Count != 1 || len(held) != 1 {
		x.Errorf("held %v, want one by %s; there was room in the window before and after: %v", held, by, rooms)
	}
	return errors.Join(p.Wait(), s.End())
}

// xmit: calls by their flags, where functions can be traced.
func xmit(x *trial.Trial) error {
	k, err := probe.Running()
	if err != nil {
		return err
	}
	if o := k.Offers(); o["fentry"] != nil && o["kprobe"] != nil {
		return trial.Skip("no function tracing: %v", o["kprobe"])
	}
	if x.Way != "" && x.Way != "fexit" && x.Way != "kprobe" {
		return trial.Skip("tcp_write_xmit has no way %s", x.Way)
	}
	p, err := lab.StartWriter(x.World, "writer", lab.TCP4, mix[:2]...)
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := p.Run(); return err }, "--xmit", "--lport", fmt.Sprint(p.Own))
	if err != nil {
		return err
	}
	calls := map[string]uint64{}
	for _, r := range rows {
		if r.Schema.View == "xmit" {
			calls[r.Get("state").S] += r.Get("count").N
		}
	}
	// Each write is pushed, in the state of its socket.
	if calls["ON"]+calls["PUSH"] < 23 || calls["OFF"]+calls["OFF|PUSH"] < 17 {
		x.Errorf("calls %v, want 23 with Nagle and 17 without at least", calls)
	}
	return nil
}
