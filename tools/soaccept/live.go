// SPDX-License-Identifier: Apache-2.0

package soaccept

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Close: lab.ByReset})},
		{Name: "uring", Hosts: lab.TwoHosts, Run: uring},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp(false)},
		{Name: "mptcp-plain", Hosts: lab.TwoHosts, Run: mptcp(true)},
		{Name: "outcomes", Run: outcomes("", func(a lab.Accepted) bool { return a.Errno != unix.EAGAIN && a.Network != lab.Unix })},
		{Name: "failed", Run: outcomes("--failed", func(a lab.Accepted) bool { return a.Errno != 0 })},
		{Name: "errors", Run: outcomes("--errors", func(a lab.Accepted) bool { return a.Errno != 0 && a.Errno != unix.EAGAIN })},
		{Name: "errors-uring", Hosts: lab.TwoHosts, Run: noSuccess},
		{Name: "unix", Run: outcomes("--family=unix", func(a lab.Accepted) bool { return a.Network == lab.Unix })},
		{Name: "blocked", Run: blocked},
	}
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Uring: true})(x)
}

// noSuccess: with --errors there is no row of accepts that succeed, by system call or by io_uring.
func noSuccess(x *trial.Trial) error {
	for _, ring := range []bool{false, true} {
		if err := lab.UringSupported(); ring && err != nil {
			return trial.Skip("%v", err)
		}
		t, err := lab.StartTCP(x.World, lab.Sessions{Count: 13, Send: 10, Recv: 10, Uring: ring})
		if err != nil {
			return err
		}
		if err := x.Attach("--errors"); err != nil {
			return err
		}
		if _, err := t.Run(); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err = errors.Join(err, trial.RowCount(len(rows), 0)); err != nil {
			return err
		}
	}
	return nil
}

// mptcp: an MPTCP listener, which Go programs open by default. A connection and
// its subflow are one row. A plain TCP client is one row too; its socket is a TCP
// socket.
func mptcp(plain bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := lab.MPTCPSupported(); err != nil {
			return trial.Skip("%v", err)
		}
		return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Network: lab.MPTCP4, Plain: plain})(x)
	}
}

// outcomes makes a case of accepts with every result, of which some are shown.
func outcomes(flag string, shown func(lab.Accepted) bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		a, err := lab.StartAccepts(x.World, "", "clumsy")
		if err != nil {
			return err
		}
		var flags []string
		if flag != "" {
			flags = append(flags, flag)
		}
		if err := x.Attach(flags...); err != nil {
			return err
		}
		out, err := a.Run()
		if err != nil {
			return err
		}
		var want []lab.Accepted
		for _, o := range out {
			if shown(o) {
				want = append(want, o)
			}
		}
		rows, err := x.Exactly(len(want))
		if err != nil {
			return err
		}
		for i, o := range want {
			x.Want(rows[i], "pid", a.PID)
			outcome(x, rows[i], o)
		}
		return nil
	}
}

func outcome(x *trial.Trial, r *row.Row, o lab.Accepted) {
	family, result, errno := "-", "Success", "-"
	if o.Network != "" {
		family = map[int]string{unix.AF_INET: "inet", unix.AF_INET6: "inet6", unix.AF_UNIX: "unix"}[o.Network.Family()]
	}
	raddr, rport, lport := "-", any(o.PeerPort), any(o.Port)
	switch o.Network {
	case lab.TCP4:
		raddr = "127.0.0.1"
	case lab.TCP6:
		raddr = "::1"
	}
	if o.Errno != 0 {
		result, errno, raddr, rport = words[o.Errno], kern.ErrnoName(int(o.Errno)), "-", "-"
	}
	switch o.Network {
	case "":
		lport = "-"
	case lab.Unix:
		raddr, rport, lport = lab.CallerPath, "-", "-"
		x.Want(r, "laddr", lab.AcceptsPath)
	}
	x.Want(r, "family", family)
	x.Want(r, "result", result)
	x.Want(r, "errno", errno)
	x.Want(r, "raddr", raddr)
	x.Want(r, "rport", rport)
	x.Want(r, "lport", lport)
}

// blocked: a server that waits in accept is shown only with --blocked, with its
// waiting time.
func blocked(x *trial.Trial) error {
	for _, flags := range [][]string{nil, {"--blocked"}, {"--errors"}, {"--errors", "--blocked"}} {
		h, err := lab.StartHangs(x.World, "", "idle", lab.Hang{Network: lab.TCP4}, lab.Hang{Network: lab.TCP4})
		if err != nil {
			return err
		}
		if err := x.Attach(flags...); err != nil {
			return err
		}
		begun, err := h.Begin()
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		rows, at, err := x.DetachTimed()
		h.End()
		if err != nil {
			return err
		}
		want := 0
		if slices.Contains(flags, "--blocked") {
			want = len(begun)
		}
		if len(rows) != want {
			x.Errorf("%v: %d rows, want %d", flags, len(rows), want)
		}
		for _, r := range rows {
			i := slices.IndexFunc(begun, func(b lab.Hang) bool { return uint64(b.Port) == r.Get("lport").N })
			if i < 0 {
				x.Errorf("nobody listens there: %s", trial.Dump(r))
				continue
			}
			x.WantPending(r, "latency_us", begun[i].Before, begun[i].After, at)
			x.Want(r, "pid", h.PID)
			x.Want(r, "comm", "idle")
			x.Want(r, "result", "Pending")
			x.Want(r, "errno", "-")
			x.Want(r, "raddr", "-")
		}
	}
	return nil
}
