// SPDX-License-Identifier: Apache-2.0

package udpconnect

import (
	"errors"
	"net/netip"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, err := lab.StartTargets(w, "server", "resolver", lab.Target{Network: lab.UDP4, Addr: "192.0.2.2:53"}, lab.Target{Network: lab.UDP6})
		if err != nil {
			return err
		}
		c, err := lab.StartConnects(w, "client", "lookup",
			lab.Attempt{Network: lab.UDP4, Addr: t.Addrs[0]}, lab.Attempt{Network: lab.UDP6, Addr: t.Addrs[1]},
			lab.Attempt{Network: lab.UDP6, Addr: mapped(t.Addrs[0])})
		if err != nil {
			return err
		}
		if _, err := c.Run(); err != nil {
			return err
		}
		l, err := lab.StartLetters(w, "client", "logger", lab.Letters{Network: lab.UDP4, To: t.Addrs[:1], Rounds: 5})
		if err != nil {
			return err
		}
		_, err = l.Run()
		return errors.Join(err, t.End())
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: connects(lab.UDP4, lab.Blocking)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: connects(lab.UDP6, lab.Blocking)},
}

// mapped is an IPv4 address as an IPv6 socket writes it.
func mapped(addr string) string {
	ap := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(netip.AddrFrom16(ap.Addr().As16()), ap.Port()).String()
}

func targets(x *trial.Trial) (*lab.Targets, error) {
	return lab.StartTargets(x.World, "server", "sink", lab.Target{Network: lab.UDP4}, lab.Target{Network: lab.UDP6})
}

// connects makes a case of 23 connections.
func connects(n lab.Network, mode lab.Mode) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := targets(x)
		if err != nil {
			return err
		}
		i := map[lab.Network]int{lab.UDP4: 0, lab.UDP6: 1}[n]
		return seen(x, n, t.Addrs[i], mode, t.Port(i))
	}
}

func seen(x *trial.Trial, n lab.Network, addr string, mode lab.Mode, port int) error {
	const count = 23
	var list []lab.Attempt
	for range count {
		list = append(list, lab.Attempt{Network: n, Addr: addr, Mode: mode})
	}
	c, err := lab.StartConnects(x.World, "client", "connector", list...)
	if err != nil {
		return err
	}
	rows, out, err := trial.RowsOf(x, count, c.Run)
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), count))
	peer := netip.MustParseAddrPort(addr).Addr().Unmap()
	for i, r := range rows {
		check(x, r, c.Proc, peer, port, "connect")
		if i < len(out) {
			x.Want(r, "lport", out[i].Port)
		}
	}
	return nil
}

func check(x *trial.Trial, r *row.Row, p *lab.Proc, peer netip.Addr, port int, how string) {
	x.Want(r, "pid", p.PID)
	x.Want(r, "comm", p.Comm)
	x.Want(r, "netns", p.Netns)
	x.Want(r, "raddr", peer)
	x.Want(r, "rport", port)
	x.Want(r, "how", how)
	ip := 6
	if peer.Is4() {
		ip = 4
	}
	x.Want(r, "ip", ip)
}
