// SPDX-License-Identifier: Apache-2.0

package ipecn

import (
	"errors"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "qdisc4", Hosts: lab.TwoHosts, Run: congested(lab.UDP4)},
		{Name: "qdisc6", Hosts: lab.TwoHosts, Run: congested(lab.UDP6)},
		{Name: "segments", Hosts: lab.TwoHosts, Run: segments},
		{Name: "loopback", Run: loopback},
		{Name: "forwarded", Hosts: routed, Run: forwarded},
		{Name: "summary", Hosts: lab.TwoHosts, Run: summary},
		{Name: "dev", Hosts: routed, Run: oneDevice},
	}
}

// congested: the mark is set by the queue of the device, below IP.
func congested(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		if err := w.Congest("client", "eth0"); errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		return expect(x, lab.Marks{Network: n, ECT0: 13, ECT1: 11}, map[crossing]int{
			at(w, "client", "eth0", "out"): 24, at(w, "server", "eth0", "in"): 24,
		})
	}
}

// segments: a buffer of several packets is one row with their number. On older
// kernels veth does not keep them together, and each packet is a row.
func segments(x *trial.Trial) error {
	if err := x.Attach(); err != nil {
		return err
	}
	if _, _, err := send(x.World, lab.Marks{Network: lab.UDP4, CE: 5, Segments: 7}); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	segs := map[string]uint64{}
	for _, r := range rows {
		segs[trial.Value(r.Get("dir"))] += r.Get("segs").N
	}
	if segs["out"] != 35 || segs["in"] != 35 {
		x.Errorf("%d packets out and %d in, want 35, in %d rows", segs["out"], segs["in"], len(rows))
	}
	return nil
}

func loopback(x *trial.Trial) error {
	return expect(x, lab.Marks{Network: lab.UDP4, ECT0: 11, CE: 23}, map[crossing]int{
		at(x.World, "host", "lo", "out"): 23, at(x.World, "host", "lo", "in"): 23,
	})
}

// forwarded: one row for each device that a packet crosses.
func forwarded(x *trial.Trial) error {
	w := x.World
	if err := w.Via("client", "router", "server"); err != nil {
		return err
	}
	return expect(x, lab.Marks{Network: lab.UDP6, ECT0: 11, CE: 23}, map[crossing]int{
		at(w, "client", w.Dev("client", "router"), "out"): 23, at(w, "router", w.Dev("router", "client"), "in"): 23,
		at(w, "router", w.Dev("router", "server"), "out"): 23, at(w, "server", w.Dev("server", "router"), "in"): 23,
	})
}

// oneDevice: two of these four crossings are of devices with that name.
func oneDevice(x *trial.Trial) error {
	w := x.World
	if err := w.Via("client", "router", "server"); err != nil {
		return err
	}
	return expect(x, lab.Marks{Network: lab.UDP4, CE: 23}, map[crossing]int{
		at(w, "router", w.Dev("router", "server"), "out"): 23, at(w, "server", w.Dev("server", "router"), "in"): 23,
	}, "--dev="+w.Dev("router", "server"))
}

// summary: the mix of two flows.
func summary(x *trial.Trial) error {
	if err := x.Attach("--summary"); err != nil {
		return err
	}
	mixes := map[int]lab.Marks{}
	for _, m := range []lab.Marks{
		{Network: lab.UDP4, None: 5, ECT1: 7, ECT0: 11, CE: 23},
		{Network: lab.UDP6, None: 13, ECT0: 17, CE: 3},
	} {
		from, _, err := send(x.World, m)
		if err != nil {
			return err
		}
		mixes[from] = m
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	seen := 0
	for _, r := range rows {
		m, ok := mixes[int(r.Get("sport").N)]
		if !ok || trial.Value(r.Get("proto")) != "udp" {
			continue // IPv6 announces itself to its neighbours
		}
		seen++
		x.Want(r, "not_ect", m.None)
		x.Want(r, "ect1", m.ECT1)
		x.Want(r, "ect0", m.ECT0)
		x.Want(r, "ce", m.CE)
		x.Want(r, "daddr", x.World.Addr("server", m.Network))
	}
	if seen != 4 {
		x.Errorf("%d rows of two flows at two devices, want 4", seen)
	}
	return nil
}
