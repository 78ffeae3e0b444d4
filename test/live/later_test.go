// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/internal/trial"
)

const bodyHolds = "live-holds"

func init() { lab.Register(bodyHolds, holds) }

// holds connects to itself many times, and keeps the connections.
func holds(c *lab.Child) error {
	var n int
	if err := c.Arg(&n); err != nil {
		return err
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for range n {
		if _, err := lab.Connect(lab.TCP4, fmt.Sprint("127.0.0.1:", port)); err != nil {
			return err
		}
		if _, err := lab.Accept(l); err != nil {
			return err
		}
	}
	if err := c.Report(true); err != nil {
		return err
	}
	return c.Await("end")
}

// TestSocketsLater: a tool knows the owner of each socket, even if there are many more
// than at its start.
func TestSocketsLater(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case lab.Emulated():
		t.Skip("so many sockets take minutes where the machine is emulated")
	case !k.HasFunc("bpf_mem_alloc_init"):
		t.Skip("memory of maps is taken beforehand")
	}
	const holders, each = 3, 7_507 // this many do not need a higher limit of files
	const sockets = 2 * holders * each
	x, err := trial.RunCase(t.Context(), named(t, "tcplife"), trial.Case{Run: func(x *trial.Trial) error {
		var all []*lab.Proc
		for range holders {
			p, err := x.World.Start("", "holder", bodyHolds, each)
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		if err := x.Attach("--stats"); err != nil {
			return err
		}
		var opened bool
		for _, p := range all {
			if err := errors.Join(p.Tell("go"), p.Expect(&opened)); err != nil {
				return err
			}
		}
		if _, err := x.Detach(); err != nil {
			return err
		}
		i := slices.IndexFunc(x.Report.MapUse, func(m tool.MapUse) bool { return m.Name == "owners" })
		if i < 0 || x.Report.MapUse[i].Used < sockets {
			x.Errorf("the owners of %d sockets: %+v", sockets, x.Report.MapUse)
		}
		for _, p := range all {
			if err := errors.Join(p.Tell("end"), p.Wait()); err != nil {
				return err
			}
		}
		return nil
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if n := x.Report.Losses[tool.LossOwnerFull]; n > 0 {
		t.Errorf("%d owners were refused of %d sockets", n, sockets)
	}
}
