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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: marked(lab.UDP4)},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: marked(lab.UDP6)},
}

// send makes the first host send to the last one, and returns the ports when
// everything has arrived.
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

// crossing is a device and a direction; tally is the number of its rows.
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

// marked: only packets marked CE are shown, at both devices.
func marked(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		return expect(x, lab.Marks{Network: n, None: 5, ECT1: 7, ECT0: 11, CE: 23}, map[crossing]int{
			at(w, "client", "eth0", "out"): 23, at(w, "server", "eth0", "in"): 23,
		})
	}
}
