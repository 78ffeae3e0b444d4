// SPDX-License-Identifier: Apache-2.0

package ipecn

import (
	"errors"
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

var routed = []string{"client", "router", "server"}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: routed,
	Run: func(w *lab.World) error {
		if err := w.Via("client", "router", "server"); err != nil {
			return err
		}
		for _, n := range []lab.Network{lab.UDP4, lab.UDP6} {
			if _, _, err := send(w, lab.Marks{Network: n, CE: 2, ECT0: 17}); err != nil {
				return err
			}
		}
		return nil
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: marked(lab.UDP4)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: marked(lab.UDP6)},
	{Name: "qdisc4", Hosts: lab.TwoHosts, Run: congested(lab.UDP4)},
	{Name: "qdisc6", Hosts: lab.TwoHosts, Run: congested(lab.UDP6)},
	{Name: "segments", Hosts: lab.TwoHosts, Run: segments},
	{Name: "loopback", Run: loopback},
	{Name: "forwarded", Hosts: routed, Run: forwarded},
	{Name: "summary", Hosts: lab.TwoHosts, Run: summary},
	{Name: "dev", Hosts: routed, Run: oneDevice},
}

// send has the first host send to the last one, and says by which ports. It returns
// when all has come there.
func send(w *lab.World, m lab.Marks) (from, to int, err error) {
	hosts := w.Hosts()
	sink, err := lab.StartTargets(w, hosts[len(hosts)-1], "sink", lab.Target{Network: m.Network})
	if err != nil {
		return 0, 0, err
	}
	m.Addr = sink.Addrs[0]
	x, err := lab.StartMarks(w, hosts[0], "sender", m)
	if err != nil {
		return 0, 0, err
	}
	return x.Port, sink.Port(0), errors.Join(x.Run(), sink.Receive(m.Bytes()), sink.End())
}

// crossing is a device and a direction, and tally how many rows it has.
type crossing struct{ netns, dev, dir string }

func tally(rows []*row.Row) map[crossing]int {
	t := map[crossing]int{}
	for _, r := range rows {
		t[crossing{trial.Value(r.Get("netns")), trial.Value(r.Get("dev")), trial.Value(r.Get("dir"))}]++
	}
	return t
}

func at(w *lab.World, host, dev, dir string) crossing {
	return crossing{fmt.Sprint(w.Netns(host)), dev, dir}
}

// expect attaches, sends, and compares the rows of each crossing.
func expect(x *trial.Trial, m lab.Marks, want map[crossing]int, flags ...string) error {
	if err := x.Attach(flags...); err != nil {
		return err
	}
	from, to, err := send(x.World, m)
	if err != nil {
		return err
	}
	total := 0
	for _, n := range want {
		total += n
	}
	x.Await(total)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	hosts := x.World.Hosts()
	for _, r := range rows {
		x.Want(r, "saddr", x.World.Addr(hosts[0], m.Network))
		x.Want(r, "daddr", x.World.Addr(hosts[len(hosts)-1], m.Network))
		x.Want(r, "sport", from)
		x.Want(r, "dport", to)
		x.Want(r, "bytes", 100+8+map[bool]int{true: 20, false: 40}[m.Network == lab.UDP4])
		x.Want(r, "proto", "udp")
		x.Want(r, "segs", 1)
		x.Want(r, "ip", map[bool]int{true: 4, false: 6}[m.Network == lab.UDP4])
	}
	got := tally(rows)
	for c, n := range want {
		if got[c] != n {
			x.Errorf("%d rows %s by %s in %s, want %d", got[c], c.dir, c.dev, c.netns, n)
		}
	}
	x.Fail(trial.RowCount(len(rows), total))
	return nil
}

// marked: only what is marked CE is shown, at both devices.
func marked(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		return expect(x, lab.Marks{Network: n, None: 5, ECT1: 7, ECT0: 11, CE: 23}, map[crossing]int{
			at(w, "client", "eth0", "out"): 23, at(w, "server", "eth0", "in"): 23,
		})
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

// segments: what the kernel keeps together is one row that says how many. On
// older kernels veth does not, and each is a row.
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

// oneDevice: of these four crossings two are by devices of that name.
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
			continue // IPv6 tells its neighbours of itself
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
