// SPDX-License-Identifier: Apache-2.0

package tcpbind

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// a bind of TCP and the options and the interface that its row must name.
type bind struct {
	lab.Binding
	options string
	ifindex string
}

const any6 = "[::]:"

// tcp is binds of every kind. Names of interfaces: lo is the first.
func tcp() []bind {
	return []bind{
		{lab.Binding{Name: "plain", Network: lab.TCP4, Addr: "127.0.0.1:7001"}, "-", "-"},
		{lab.Binding{Name: "in use", Network: lab.TCP4, Addr: "127.0.0.1:7001", Want: unix.EADDRINUSE}, "-", "-"},
		{lab.Binding{Name: "any port", Network: lab.TCP4, Addr: "0.0.0.0:0", ReuseAddr: true}, "reuseaddr", "-"},
		{lab.Binding{Name: "shared", Network: lab.TCP6, Addr: any6 + "7002", ReusePort: true, V6Only: true}, "reuseport,v6only", "-"},
		{lab.Binding{Name: "shared again", Network: lab.TCP6, Addr: any6 + "7002", ReusePort: true, ReuseAddr: true, V6Only: true}, "reuseaddr,reuseport,v6only", "-"},
		{lab.Binding{Name: "not ours", Network: lab.TCP4, Addr: "192.0.2.77:7003", Want: unix.EADDRNOTAVAIL}, "-", "-"},
		{lab.Binding{Name: "not yet ours", Network: lab.TCP4, Addr: "192.0.2.77:7003", Freebind: true}, "freebind", "-"},
		{lab.Binding{Name: "not ours at all", Network: lab.TCP4, Addr: "192.0.2.78:7004", Transparent: true}, "transparent", "-"},
		{lab.Binding{Name: "no port", Network: lab.TCP4, Addr: "127.0.0.1:0", NoPort: true}, "bind_address_no_port", "-"},
		{lab.Binding{Name: "device", Network: lab.TCP6, Addr: "[::1]:7005", Device: "lo"}, "-", "1"},
	}
}

func list(binds []bind) (out []lab.Binding) {
	for _, b := range binds {
		out = append(out, b.Binding)
	}
	return out
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{Run: func(w *lab.World) error {
	b, err := lab.StartBinds(w, "", "server", list(tcp())...)
	if err != nil {
		return err
	}
	_, err = b.Run()
	return err
}}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "tcp", Run: func(x *trial.Trial) error { return binds(x, tcp()) }},
	{Name: "mptcp", Run: mptcp},
}

// binds makes the binds and compares a row with each.
func binds(x *trial.Trial, want []bind, flags ...string) error {
	p, err := lab.StartBinds(x.World, "", "binder", list(want)...)
	if err != nil {
		return err
	}
	var got []lab.Bound
	rows, err := x.Rows(func() (err error) {
		if got, err = p.Run(); err == nil {
			x.Await(len(want))
		}
		return err
	}, flags...)
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), len(want)); err != nil {
		return err
	}
	for i, r := range rows {
		w := want[i]
		asked := netip.MustParseAddrPort(w.Addr)
		port, errno := fmt.Sprint(asked.Port()), "-"
		switch {
		case w.Want != 0:
			errno = kern.ErrnoName(int(w.Want))
		case w.NoPort:
			port = "-"
		case asked.Port() == 0:
			port = fmt.Sprint(got[i].Port)
		}
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", "binder")
		x.Want(r, "laddr", asked.Addr())
		x.Want(r, "lport", port)
		x.Want(r, "errno", errno)
		x.Want(r, "ret", -int(w.Want))
		x.Want(r, "ip", map[bool]string{true: "4", false: "6"}[asked.Addr().Is4()])
		x.Want(r, "options", w.options)
		x.Want(r, "ifindex", w.ifindex)
		x.Want(r, "proto", map[lab.Network]string{lab.TCP4: "tcp", lab.TCP6: "tcp", lab.MPTCP4: "mptcp", lab.UDP4: "udp", lab.UDP6: "udp"}[w.Network])
	}
	return nil
}

// mptcp: the bind of the subflow is not shown again.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	return binds(x, []bind{{lab.Binding{Name: "mptcp", Network: lab.MPTCP4, Addr: "127.0.0.1:0", ReuseAddr: true}, "reuseaddr", "-"}})
}
