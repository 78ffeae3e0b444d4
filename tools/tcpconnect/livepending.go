// SPDX-License-Identifier: Apache-2.0

package tcpconnect

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// pending: connections without an answer at the end of the run are shown with their
// age. -c counts them separately.
func pending(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "server", "targets",
		lab.Target{Network: lab.TCP4, Kind: lab.Silent}, lab.Target{Network: lab.TCP6, Kind: lab.Silent})
	if err != nil {
		return err
	}
	list := []lab.Hang{
		{Network: lab.TCP4, Addr: targets.Addrs[0]},
		{Network: lab.TCP4, Addr: targets.Addrs[0], Waits: true},
		{Network: lab.TCP6, Addr: targets.Addrs[1]},
	}
	for _, flags := range [][]string{nil, {fmt.Sprint("--rport=", targets.Port(0))}, {"-c"}} {
		h, err := lab.StartHangs(x.World, "client", "hanging", list...)
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
		rows, at, err := x.DetachTimed()
		h.End()
		switch {
		case err != nil:
			return err
		case flags == nil:
			aged(x, h, rows, begun, at)
		case flags[0] == "-c":
			counted(x, rows, targets)
		case len(rows) != 2:
			x.Errorf("%v: %d rows, want 2", flags, len(rows))
		}
	}
	return nil
}

func aged(x *trial.Trial, h *lab.Hangs, rows []*row.Row, begun []lab.Hang, at trial.Ended) {
	x.Fail(trial.RowCount(len(rows), len(begun)))
	found := map[uint64]*row.Row{}
	for _, r := range rows {
		found[r.Get("lport").N] = r
	}
	for _, b := range begun {
		r := found[uint64(b.Port)]
		if r == nil {
			x.Errorf("no row of the connection from port %d", b.Port)
			continue
		}
		x.WantPending(r, "latency_us", b.Before, b.After, at)
		x.Want(r, "pid", h.PID)
		x.Want(r, "comm", "hanging")
		x.Want(r, "result", "Pending")
		x.Want(r, "errno", "-")
		x.Want(r, "raddr", x.World.Addr("server", b.Network))
	}
}

func counted(x *trial.Trial, rows []*row.Row, targets *lab.Targets) {
	if len(rows) != 2 {
		x.Errorf("-c: %d rows, want 2", len(rows))
	}
	for _, r := range rows {
		x.Want(r, "pending", 1)
		x.Want(r, "failed", 0)
		x.Want(r, "count", map[int]int{targets.Port(0): 2, targets.Port(1): 1}[int(r.Get("rport").N)])
	}
}
