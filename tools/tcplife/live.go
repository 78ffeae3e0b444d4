// SPDX-License-Identifier: Apache-2.0

package tcplife

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyBefore, before)
	lab.Register(bodyAfter, after)
	lab.Register(bodyRenamed, beforeName)
	lab.Register(bodyLeave, leave)
	return append([]trial.Case{
		{Name: "loopback", Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777})},
		{Name: "server-closes", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 23, Send: 1000, Recv: 777, Close: lab.ByServer})},
		{Name: "parallel", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 211, Send: 1000, Recv: 777, Parallel: 7})},
		{Name: "reset", Hosts: lab.TwoHosts, Run: resets},
		{Name: "lossy", Hosts: lab.TwoHosts, Run: lossy},
		{Name: "uring", Run: uring},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
		{Name: "self", Run: self},
		{Name: "exec", Run: namedAfter(bodyBefore, 0)},
		{Name: "exec-used", Run: namedAfter(bodyBefore, often)},
		{Name: "renamed", Run: namedAfter(bodyRenamed, 0)},
		{Name: "renamed-used", Run: namedAfter(bodyRenamed, often)},
		{Name: "handed-used", Run: handed},
		{Name: "flood", Run: trial.Undisturbed(flood), Slow: true}, // as tcptop's
		{Name: "small-ring", Run: smallRing, Slow: true},
		{Name: "small-maps", Run: smallMaps, Slow: true},
	}, bytesLive()...)
}

func resets(x *trial.Trial) error {
	_, err := seen(x, lab.Sessions{Count: 13, Send: 500, Recv: 300, Close: lab.ByReset}, func(r *row.Row, client bool) {
		if client {
			x.Want(r, "reset_by", "local")
			x.Want(r, "end", "reset")
		} else {
			x.Want(r, "reset_by", "remote")
			x.Want(r, "end", "reset-peer")
		}
	})
	return err
}

// lossy: the other columns of a session that lost a segment.
func lossy(x *trial.Trial) error {
	const reno = "reno" // every kernel has it
	if err := x.World.Sysctl("client", "net.ipv4.tcp_congestion_control", reno); err != nil {
		return err
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Send: 333, Recv: 1})
	if err != nil {
		return err
	}
	var rows []*row.Row
	var client, server lab.Counters
	began := time.Now()
	client, err = x.World.Counted("client", func() (err error) {
		server, err = x.World.Counted("server", func() (err error) {
			rows, err = x.Rows(func() error {
				err := t.RunLossy(lab.Loss{To: t.Port, Data: 1, Count: 1})
				x.Await(2)
				return err
			})
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	most, again := time.Since(began), client["TcpRetransSegs"]
	if again == 0 {
		return errors.New("nothing was lost")
	}
	ends(x, t, rows, func(r *row.Row, client bool) {
		x.Want(r, "errno", "-")
		x.Want(r, "reset_by", "-")
		x.Want(r, "end", "-")
		if client {
			x.Want(r, "retrans", again)
			x.Want(r, "cong", reno)
			x.Want(r, "state_close", "FIN_WAIT2")
		} else {
			x.Want(r, "retrans", server["TcpRetransSegs"]) // none, unless the machine stood still
			x.Want(r, "state_close", "LAST_ACK")
		}
		established, all := r.Get("established_ms").N, r.Get("duration_ms").N
		if established == 0 || established > all || time.Duration(all) > most {
			x.Errorf("established for %d of %d ns, within %v", established, all, most)
		}
		if us := r.Get("srtt_us").N; us == 0 || us > uint64(most.Microseconds()) {
			x.Errorf("a round trip of %d us, within %v", us, most)
		}
	})
	return nil
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, err := seen(x, lab.Sessions{Count: 13, Send: 1000, Recv: 777, Uring: true}, nil)
	return err
}

// mptcp: the connection and its subflow are one session.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 13, Send: 1000, Recv: 777, Network: lab.MPTCP4})
	if err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 26, t.Run)
	if err != nil {
		return err
	}
	ends(x, t, rows, nil)
	return nil
}

// older: sessions that were open before the tool, and are closed after.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 17, Send: 1000, Recv: 777, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 34, t.Run)
	if err != nil {
		return err
	}
	ends(x, t, rows, func(r *row.Row, _ bool) {
		x.Want(r, "duration_ms", "-")
		if c := r.Get("seen_ms"); c.Kind == row.Null {
			x.Errorf("no seen_ms in %s", trial.Dump(r))
		}
	})
	return nil
}

// self: a socket that connects to itself goes through SYN_RECV too, but did not
// begin there.
func self(x *trial.Trial) error {
	at := lab.TCP4.At(x.World.Addr("", lab.TCP4), 7001)
	c, err := lab.StartConnects(x.World, "", "lab-self", lab.Attempt{Network: lab.TCP4, From: at, Addr: at})
	if err != nil {
		return err
	}
	if err := x.Attach(fmt.Sprintf("--pid=%d", c.PID)); err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	x.Want(rows[0], "comm", c.Comm)
	return nil
}

// flood: many sessions at full speed. None is lost, and each has the right
// process.
func flood(x *trial.Trial) error {
	n := 20000
	if lab.Emulated() {
		n = 2003
	}
	// The ring has room for all: they come faster than a busy machine
	// reads.
	_, err := seen(x, lab.Sessions{Count: n, Send: 1000, Recv: 777, Parallel: 4, Brief: true}, nil, "--buffer=16M")
	return err
}

// smallRing: events that do not fit are counted, and the rows that are shown
// are right.
func smallRing(x *trial.Trial) error {
	const n = 401
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: n, Send: 100, Recv: 50, Parallel: 4, Brief: true})
	if err != nil {
		return err
	}
	x.Stalled = true
	rows, err := x.Rows(func() error {
		_, err := t.Run()
		return errors.Join(err, x.World.AwaitClosed("", t.Port))
	}, "--buffer=4096")
	if err != nil {
		return err
	}
	lost := int(x.Report.Lost())
	if lost == 0 {
		return fmt.Errorf("a ring of one page lost nothing of %d sessions", n)
	}
	if len(rows)+lost != 2*n {
		x.Errorf("%d shown and %d lost are not %d", len(rows), lost, 2*n)
	}
	for _, r := range rows {
		if pid := int(r.Get("pid").N); pid != t.Client.PID && pid != t.Server.PID {
			x.Errorf("pid %d is neither client nor server", pid)
		}
	}
	return nil
}

// smallMaps: owners that do not fit are counted. Their sessions still have
// rows.
func smallMaps(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 401, Send: 100, Recv: 50, Hold: true, Brief: true})
	if err != nil {
		return err
	}
	if err := x.Attach("--memory=48k"); err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	if _, err := t.Run(); err != nil {
		return err
	}
	x.Await(802)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), 802))
	if x.Report.Losses[tool.LossOwnerFull] == 0 {
		x.Errorf("no owner was refused by a map of a few entries")
	}
	for _, r := range rows {
		if pid := r.Get("pid"); pid.Kind != row.Null && int(pid.N) != t.Client.PID && int(pid.N) != t.Server.PID {
			x.Errorf("pid %d is neither client nor server", pid.N)
		}
	}
	return nil
}

const (
	bodyBefore  = "tcplife-before"
	bodyAfter   = "tcplife-after"
	bodyRenamed = "tcplife-renamed"
)

// often is how often a socket is used before it changes hands: more than the table of owners is
// asked before it is taken as right (KEPT_OFTEN, SEEN_ASKS).
const often = 30

// meet connects to itself when it is told to, and uses both ends as often as its argument says.
func meet(c *lab.Child) ([]int, error) {
	var times int
	if err := c.Arg(&times); err != nil {
		return nil, err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return nil, err
	}
	if err := c.Await("go"); err != nil {
		return nil, err
	}
	w, err := lab.Connect(lab.TCP4, fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return nil, err
	}
	r, err := lab.Accept(l)
	if err != nil {
		return nil, err
	}
	for range times {
		if err := talk([]int{w, r}); err != nil {
			return nil, err
		}
	}
	return []int{w, r}, nil
}

// before connects to itself and executes another program, which inherits both
// ends.
func before(c *lab.Child) error {
	ends, err := meet(c)
	if err != nil {
		return err
	}
	for _, fd := range ends {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return c.Become("after", bodyAfter, ends)
}

// beforeName connects to itself and uses both ends under another name.
func beforeName(c *lab.Child) error {
	ends, err := meet(c)
	if err != nil {
		return err
	}
	if err := lab.SetThreadComm("after"); err != nil {
		return err
	}
	return talk(ends)
}

func after(c *lab.Child) error {
	var ends []int
	if err := c.Arg(&ends); err != nil {
		return err
	}
	return talk(ends)
}

// talk makes each end send something to the other.
func talk(ends []int) error {
	for i := range ends {
		if _, err := unix.Write(ends[i], []byte("hello")); err != nil {
			return err
		}
		if _, err := unix.Read(ends[1-i], make([]byte, 8)); err != nil {
			return err
		}
	}
	return nil
}

// namedAfter: if a process changes its name, by exec or without, after it made a connection and used
// it so many times, the row has the name at the last use.
func namedAfter(body string, times int) func(*trial.Trial) error {
	return func(x *trial.Trial) error { return nameAtUse(x, body, times) }
}

func nameAtUse(x *trial.Trial, body string, times int) error {
	k, err := probe.Running()
	if err != nil {
		return err
	}
	if !k.HasFunc("bpf_get_current_task_btf") {
		return trial.Skip("on this kernel it would cost too much to look")
	}
	p, err := x.World.Start("", "before", body, times)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if err := errors.Join(p.Tell("go"), p.Wait()); err != nil {
		return err
	}
	p.Comm = "after"
	rows, err := x.Exactly(2)
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
	}
	return err
}

// handed: a server uses a connection often, and passes it to another process. The row has the process
// that used it last.
func handed(x *trial.Trial) error {
	t, err := lab.StartTalks(x.World, "", "", lab.Talk{Turns: often + 3, Hand: "fork", HandAfter: often})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	said, err := t.Run()
	if err != nil {
		return err
	}
	rows, err := x.Exactly(2)
	for _, r := range rows {
		if int(r.Get("lport").N) == t.Ports[0] {
			x.Want(r, "pid", said[0].Server.Taker)
			x.Want(r, "comm", lab.HandComm)
		} else {
			x.Want(r, "pid", t.Client.PID)
		}
	}
	return err
}
