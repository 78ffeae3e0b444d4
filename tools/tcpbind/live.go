// SPDX-License-Identifier: Apache-2.0

package tcpbind

import (
	"errors"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "uring", Run: uring},
		{Name: "udp", Run: udp},
		{Name: "filter", Run: filter},
	}
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	err := binds(x, []bind{
		{lab.Binding{Name: "uring", Network: lab.TCP4, Addr: "127.0.0.1:0", Uring: true}, "-", "-"},
		{lab.Binding{Name: "uring6", Network: lab.TCP6, Addr: "[::1]:7006", Uring: true}, "v6only", "-"},
	})
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	return err
}

// udp: only with --proto udp.
func udp(x *trial.Trial) error {
	return binds(x, []bind{
		{lab.Binding{Name: "udp", Network: lab.UDP4, Addr: "127.0.0.1:7007"}, "-", "-"},
		{lab.Binding{Name: "udp6", Network: lab.UDP6, Addr: "[::1]:0"}, "-", "-"},
	}, "--proto=udp")
}

// filter: UDP is left out by default, and so are other ports.
func filter(x *trial.Trial) error {
	p, err := lab.StartBinds(x.World, "", "binder",
		lab.Binding{Name: "udp", Network: lab.UDP4, Addr: "127.0.0.1:7008"},
		lab.Binding{Name: "other", Network: lab.TCP4, Addr: "127.0.0.1:7009"},
		lab.Binding{Name: "tcp", Network: lab.TCP4, Addr: "127.0.0.1:7008"})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := p.Run(); return err }, "--lport=7008", "--comm=bind*")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	x.Want(rows[0], "proto", "tcp")
	return nil
}
