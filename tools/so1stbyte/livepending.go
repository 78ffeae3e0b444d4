// SPDX-License-Identifier: Apache-2.0

package so1stbyte

import (
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// mute is connections to a server that never answers, and one that is never
// established. The first two UDP sockets wait for a datagram; the last one is
// closed.
func mute(x *trial.Trial) ([]lab.Hang, error) {
	targets, err := lab.StartTargets(x.World, "server", "mute",
		lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.Silent}, lab.Target{Network: lab.UDP4})
	if err != nil {
		return nil, err
	}
	return []lab.Hang{
		{Network: lab.TCP4, Addr: targets.Addrs[0]},
		{Network: lab.TCP4, Addr: targets.Addrs[0], Receive: true},
		{Network: lab.TCP4, Addr: targets.Addrs[1]},
		{Network: lab.UDP4, Addr: targets.Addrs[2]},
		{Network: lab.UDP4, Addr: targets.Addrs[2], Receive: true},
		{Network: lab.UDP4, Addr: targets.Addrs[2], Closes: true},
	}, nil
}

// pending: connections without a byte at the end of the run are shown with
// their age.
func pending(x *trial.Trial) error {
	list, err := mute(x)
	if err != nil {
		return err
	}
	h, err := lab.StartHangs(x.World, "client", "hanging", list...)
	if err != nil {
		return err
	}
	if err := x.Attach("--events"); err != nil {
		return err
	}
	begun, err := h.Begin()
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	rows, at, err := x.DetachTimed()
	h.End()
	if err != nil {
		return err
	}
	begun = begun[:len(begun)-1]
	if err := trial.RowCount(len(rows), len(begun)); err != nil {
		return err
	}
	found := map[uint64]*row.Row{}
	for _, r := range rows {
		found[r.Get("lport").N] = r
	}
	for i, b := range begun {
		r := found[uint64(b.Port)]
		if r == nil {
			x.Errorf("no row of the connection from port %d", b.Port)
			continue
		}
		x.WantPending(r, "latency_us", b.Before, b.After, at)
		x.Want(r, "pid", h.PID)
		x.Want(r, "outcome", "pending")
		if connected := r.Get("wait_us").Kind != row.Null; connected != (i != 2) {
			x.Errorf("connected: %v, in %s", connected, trial.Dump(r))
		}
	}
	return nil
}

// pendingHistogram: without --events they have a histogram of their own. Each
// output counts the connections that wait then.
func pendingHistogram(x *trial.Trial) error {
	list, err := mute(x)
	if err != nil {
		return err
	}
	h, err := lab.StartHangs(x.World, "client", "hanging", list[:2]...)
	if err != nil {
		return err
	}
	defer h.End()
	if err := x.Attach("--interval=200ms"); err != nil {
		return err
	}
	begun, err := h.Begin()
	if err != nil {
		return err
	}
	x.Await(3)
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	if len(rows) < 4 {
		x.Errorf("%d rows, want one a tick and one at the end", len(rows))
	}
	var old uint64
	for i, r := range rows {
		x.Want(r, "pending", 1)
		x.Want(r, "outcome", "pending")
		x.Want(r, "comm", "hanging")
		x.Want(r, "proto", "tcp")
		d := r.Get("latency_us").Ref.(*kern.Hist)
		// The age of the first connection says whether the second had
		// begun, exact to a microsecond.
		age := int64(d.Max) * 1000
		one, two := age < begun[1].After-begun[0].Before, age+1000 > begun[1].Before-begun[0].After
		if d.Max <= old || !(one && d.Count == 1 || two && d.Count == 2) {
			x.Errorf("output %d: %d pending, the oldest %d us, %d before", i, d.Count, d.Max, old)
		}
		old = d.Max
	}
	if most, least := (at.To-begun[0].Before)/1000, (at.From-begun[0].After)/1000; int64(old) > most || int64(old) < least {
		x.Errorf("the oldest is %d us, want from %d to %d", old, least, most)
	}
	return nil
}

// unanswered: connections that end without a byte are shown as such.
func unanswered(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "server", "mute", lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	for _, flag := range []string{"--events", "--by=comm"} {
		c, err := lab.StartConnects(x.World, "client", "hasty",
			lab.Attempt{Name: "success", Network: lab.TCP4, Addr: targets.Addrs[0]},
			lab.Attempt{Name: "refused", Network: lab.TCP4, Addr: targets.Addrs[1], Want: 111},
			lab.Attempt{Name: "success", Network: lab.TCP4, Addr: targets.Addrs[0], Mode: lab.Nonblocking},
			lab.Attempt{Name: "refused later", Network: lab.TCP4, Addr: targets.Addrs[1], Mode: lab.Nonblocking, Want: 111})
		if err != nil {
			return err
		}
		if err := x.Attach(flag); err != nil {
			return err
		}
		if _, err := c.Run(); err != nil {
			return err
		}
		if err := x.World.Ended("client"); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		got := map[string]uint64{}
		for _, r := range rows {
			n := uint64(1)
			if h, ok := r.Get("latency_us").Ref.(*kern.Hist); ok {
				n = h.Count
			}
			x.Want(r, "pending", "-")
			got[trial.Value(r.Get("outcome"))] += n
		}
		if len(got) != 2 || got["no byte"] != 2 || got["no connection"] != 2 {
			x.Errorf("%s: %v, want 2 without a byte and 2 without a connection", flag, got)
		}
	}
	return nil
}
