// SPDX-License-Identifier: Apache-2.0

package udpconnect

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "mapped", Hosts: lab.TwoHosts, Run: ip4In6},
		{Name: "uring", Hosts: lab.TwoHosts, Run: uring},
		{Name: "failures", Hosts: lab.TwoHosts, Run: failures},
		{Name: "sendto", Hosts: lab.TwoHosts, Run: letters("cgroup", lab.Sendto)},
		{Name: "sendmsg", Hosts: lab.TwoHosts, Run: letters("cgroup", lab.Sendmsg)},
		{Name: "sendto-fentry", Hosts: lab.TwoHosts, Run: letters("fentry", lab.Sendto)},
		{Name: "sendto-kprobe", Hosts: lab.TwoHosts, Run: letters("kprobe", lab.Sendto)},
	}
}

func ip4In6(x *trial.Trial) error {
	t, err := targets(x)
	if err != nil {
		return err
	}
	return seen(x, lab.UDP6, mapped(t.Addrs[0]), lab.Blocking, t.Port(0))
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return connects(lab.UDP4, lab.ByUring)(x)
}

// failures: a connect without a route is not shown, nor is a TCP connect.
func failures(x *trial.Trial) error {
	t, err := lab.StartTargets(x.World, "server", "sink", lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.UDP4})
	if err != nil {
		return err
	}
	c, err := lab.StartConnects(x.World, "client", "connector",
		lab.Attempt{Network: lab.UDP4, Addr: lab.UDP4.At(lab.NoRoute4, 9), Want: unix.ENETUNREACH},
		lab.Attempt{Network: lab.UDP6, Addr: lab.UDP6.At(lab.Prohibited6, 9), Want: unix.EACCES},
		lab.Attempt{Network: lab.TCP4, Addr: t.Addrs[0]},
		lab.Attempt{Network: lab.UDP4, Addr: t.Addrs[1]})
	if err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 1, c.Run)
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	check(x, rows[0], c.Proc, x.World.Addr4("server"), t.Port(1), "connect")
	return nil
}

// letters: two sockets, IPv4 and IPv6, write to two peers 13 times each. The
// IPv6 socket also writes to an IPv4 peer.
func letters(way string, call lab.Call) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		k, err := probe.Running()
		if err != nil {
			return err
		}
		if err := k.Offers()[way]; err != nil {
			return trial.Skip("%v", err)
		}
		t, err := targets(x)
		if err != nil {
			return err
		}
		if err := x.Attach("--unconnected", "--way=datagram="+way); err != nil {
			return err
		}
		type peer struct{ port, raddr string }
		want := map[peer]*lab.Proc{}
		for n, to := range map[lab.Network][]string{
			lab.UDP4: {t.Addrs[0]}, lab.UDP6: {t.Addrs[1], mapped(t.Addrs[0])},
		} {
			l, err := lab.StartLetters(x.World, "client", "writer", lab.Letters{Network: n, To: to, Rounds: 13, Call: call})
			if err != nil {
				return err
			}
			port, err := l.Run()
			if err != nil {
				return err
			}
			for _, addr := range to {
				want[peer{fmt.Sprint(port), netip.MustParseAddrPort(addr).Addr().Unmap().String()}] = l.Proc
			}
		}
		x.Await(len(want))
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		x.Fail(trial.RowCount(len(rows), len(want)))
		for _, r := range rows {
			p := want[peer{trial.Value(r.Get("lport")), trial.Value(r.Get("raddr"))}]
			if p == nil {
				x.Errorf("nobody did %s", trial.Dump(r))
				continue
			}
			i := 0
			if r.Get("raddr").IP().Is6() {
				i = 1
			}
			check(x, r, p, r.Get("raddr").IP(), t.Port(i), "datagram")
		}
		return nil
	}
}
