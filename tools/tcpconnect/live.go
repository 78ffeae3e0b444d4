// SPDX-License-Identifier: Apache-2.0

package tcpconnect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "uring", Run: uring},
		{Name: "outcomes", Hosts: lab.TwoHosts, Run: outcomes(true)},
		{Name: "timeouts", Hosts: lab.TwoHosts, Run: outcomes(false), Slow: true},
		{Name: "asked", Hosts: lab.TwoHosts, Run: asked},
		{Name: "others", Hosts: lab.TwoHosts, Run: others},
		{Name: "uring-outcomes", Hosts: lab.TwoHosts, Run: uringOutcomes},
		{Name: "slow", Hosts: lab.TwoHosts, Run: slow},
		{Name: "counts", Hosts: lab.TwoHosts, Run: counts},
		{Name: "names", Run: named},
		{Name: "pending", Hosts: lab.TwoHosts, Run: pending},
	}
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Network: lab.MPTCP4})(x)
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return sessions(lab.Sessions{Count: 13, Send: 10, Recv: 10, Uring: true})(x)
}

// outcomes: every result of a connect, blocking and non-blocking, with its
// reason.
func outcomes(quick bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		_, list, err := lab.Outcomes(x.World, "targets")
		if err != nil {
			return err
		}
		list = tcpOnly(list, quick)
		if quick {
			return attempts(x, list, true)
		}
		return x.Timed(func() error { return attempts(x, list, true) }) // a timer ends some
	}
}

// others: failed connects of other sockets are not shown.
func others(x *trial.Trial) error {
	to, err := lab.StartTargets(x.World, "server", "target", lab.Target{Network: lab.TCP4})
	if err != nil {
		return err
	}
	c, err := lab.StartConnects(x.World, "client", "caller",
		lab.Attempt{Name: "udp", Network: lab.UDP4, Addr: lab.UDP4.At(lab.NoRoute4, 9), Want: unix.ENETUNREACH},
		lab.Attempt{Name: "unix", Network: lab.Unix, Addr: "@nobody-listens", Want: unix.ECONNREFUSED},
		lab.Attempt{Name: "tcp", Network: lab.TCP4, Addr: to.Addrs[0]})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	x.Want(rows[0], "result", "Success")
	x.Want(rows[0], "pid", c.PID)
	return to.End()
}

// asked: a second call on a socket only returns the result of the first one. It
// is not another connection.
func asked(x *trial.Trial) error {
	to, err := lab.StartTargets(x.World, "server", "targets", lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.Silent})
	if err != nil {
		return err
	}
	list := []lab.Attempt{
		{Name: "success", Network: lab.TCP4, Addr: to.Addrs[0], Mode: lab.Asked},
		{Name: "timed out", Network: lab.TCP4, Addr: to.Addrs[1], Mode: lab.Asked, Want: unix.ETIMEDOUT, Hasty: true},
		{Name: "no route", Network: lab.TCP4, Addr: lab.TCP4.At(lab.NoRoute4, 9), Mode: lab.Asked, Want: unix.ENETUNREACH},
		{Name: "success", Network: lab.TCP4, Addr: to.Addrs[0]},
	}
	return x.Timed(func() error { return attempts(x, list, true) }) // a timer ends one
}

// slow: --min leaves out fast connects, and --max slow ones.
func slow(x *trial.Trial) error {
	to, err := lab.StartTargets(x.World, "server", "targets", lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.Silent})
	if err != nil {
		return err
	}
	list := []lab.Attempt{
		{Name: "success", Network: lab.TCP4, Addr: to.Addrs[0]},
		{Name: "timed out", Network: lab.TCP4, Addr: to.Addrs[1], Want: unix.ETIMEDOUT, Hasty: true},
		{Name: "success", Network: lab.TCP4, Addr: to.Addrs[0]},
	}
	for _, c := range []struct {
		flag string
		want []string
	}{{"--min=900ms", []string{"ETIMEDOUT"}}, {"--max=900ms", []string{"-", "-"}}} {
		if err := x.Timed(func() error { // a timer ends one
			p, err := lab.StartConnects(x.World, "", "prober", list...)
			if err != nil {
				return err
			}
			rows, _, err := trial.RowsOf(x, len(c.want), p.Run, c.flag)
			if err != nil {
				return err
			}
			if err := trial.RowCount(len(rows), len(c.want)); err != nil {
				return fmt.Errorf("%s: %w", c.flag, err)
			}
			for i, r := range rows {
				x.Want(r, "errno", c.want[i])
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// attempts makes the connects and compares a row with each.
func attempts(x *trial.Trial, list []lab.Attempt, address bool) error {
	p, err := lab.StartConnects(x.World, "", "prober", list...)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	out, err := p.Run()
	if err != nil {
		return err
	}
	x.Await(len(out))
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), len(out)))
	for i := range min(len(rows), len(out)) {
		r, o := rows[i], out[i]
		to := netip.MustParseAddrPort(o.Attempt.Addr)
		x.Want(r, "pid", p.PID)
		x.Want(r, "errno", errnoOf(o))
		if address || r.Get("rport").Kind != row.Null {
			x.Want(r, "raddr", to.Addr())
			x.Want(r, "rport", to.Port())
		}
		if o.Port != 0 {
			x.Want(r, "lport", o.Port)
		}
		if ns := r.Get("latency_us"); ns.Kind != row.Null && int64(ns.N) > o.NS {
			x.Errorf("%s: %d ns, and the process waited %d", o.Attempt.Name, ns.N, o.NS)
		}
	}
	return nil
}

func errnoOf(o lab.Outcome) string {
	if o.Errno == 0 {
		return "-"
	}
	return kern.ErrnoName(int(o.Errno))
}

// uringOutcomes: the same by io_uring. The address of a connect that fails
// before a SYN is sent is not known.
func uringOutcomes(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, list, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(tcpOnly(list, true), func(a lab.Attempt) bool { return a.Mode != lab.Blocking })
	for i := range list {
		list[i].Mode = lab.ByUring
	}
	return attempts(x, list, false)
}

// counts: connects by destination, with failures counted separately, and by
// process.
func counts(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "server", "targets", lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	var list []lab.Attempt
	for i := range 23 {
		a := lab.Attempt{Name: "open", Network: lab.TCP4, Addr: targets.Addrs[0]}
		if i%4 == 3 {
			a = lab.Attempt{Name: "refused", Network: lab.TCP4, Addr: targets.Addrs[1], Want: unix.ECONNREFUSED}
		}
		list = append(list, a)
	}
	for _, flags := range [][]string{{"-c"}, {"-c", "--by=comm,rport"}} {
		p, err := lab.StartConnects(x.World, "client", "prober", list...)
		if err != nil {
			return err
		}
		rows, err := x.Rows(func() error { _, err := p.Run(); return err }, flags...)
		if err != nil {
			return err
		}
		if len(rows) != 2 {
			return errors.New("want two rows, one per destination: " + fmt.Sprint(len(rows)))
		}
		for _, r := range rows {
			count, failed := 18, 0
			if int(r.Get("rport").N) == targets.Port(1) {
				count, failed = 5, 5
			}
			x.Want(r, "count", count)
			x.Want(r, "failed", failed)
			if len(flags) > 1 {
				x.Want(r, "comm", "prober")
			}
		}
	}
	return nil
}

// named: names from a real name server: two names with two addresses and one
// port, and an address without a name.
func named(x *trial.Trial) error {
	stop, err := lab.StartNames(x.World, "", map[string]netip.Addr{
		"www.example": netip.MustParseAddr("127.0.0.2"), "db.example": netip.MustParseAddr("127.0.0.3"), "six.example": netip.IPv6Loopback(),
	})
	if err != nil {
		return err
	}
	defer stop()
	targets, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4, Addr: "0.0.0.0:7777"}, lab.Target{Network: lab.TCP6, Addr: "[::1]:7777"})
	if err != nil {
		return err
	}
	port := fmt.Sprint(targets.Port(0))
	p, err := lab.StartLookups(x.World, "", "gopher", "nameserver 127.0.0.1\n", "www.example.:"+port, "db.example.:"+port, "127.0.0.4:"+port, "six.example.:"+port, "www.example.:"+port)
	if err != nil {
		return err
	}
	if err := x.Attach("--dns"); err != nil {
		return err
	}
	var done []lab.Lookup
	if err := p.Call("go", &done); err != nil {
		return err
	}
	for _, l := range done {
		if l.Error != "" {
			return errors.New(l.Error)
		}
	}
	x.Await(5)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	want := [][2]string{{"127.0.0.2", "www.example"}, {"127.0.0.3", "db.example"}, {"127.0.0.4", "-"}, {"::1", "six.example"}, {"127.0.0.2", "www.example"}}
	if err := trial.RowCount(len(rows), len(want)); err != nil {
		return err
	}
	for i, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "raddr", want[i][0])
		x.Want(r, "host", want[i][1])
	}
	return nil
}
