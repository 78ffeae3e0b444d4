// SPDX-License-Identifier: Apache-2.0

package netsize

import (
	"errors"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		wire, err := w.Wire("server", "eth0")
		if err != nil {
			return err
		}
		defer wire.Close()
		return lab.RunTCP(w, lab.Sessions{Count: 7, Send: 100, Recv: 300_000, ClientHost: "server", ServerHost: "client"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "sizes", Hosts: lab.TwoHosts, Run: sizes},
}

// The link's header counts when a packet is sent, and not when it is received.
const ethernet = 14

// headers of UDP and IP.
var headers = map[lab.Network]int{lab.UDP4: 20 + 8, lab.UDP6: 40 + 8}

// where is a metric and a device; dev is empty for rows that are not split by
// device.
type where struct{ metric, dev, netns string }

// send makes the first host send to the last one, and returns when everything
// has arrived.
func send(w *lab.World, m lab.Marks, gro bool) error {
	hosts := w.Hosts()
	to, err := lab.StartTargets(w, hosts[len(hosts)-1], "sink", lab.Target{Network: m.Network, GRO: gro})
	if err != nil {
		return err
	}
	m.Addr = to.Addrs[0]
	x, err := lab.StartMarks(w, hosts[0], "sender", m)
	if err != nil {
		return err
	}
	if !m.Stepwise {
		return errors.Join(x.Run(), to.Receive(m.Bytes()), to.End())
	}
	for range m.None {
		if err := errors.Join(x.Step(), to.Receive(m.Bytes()/m.None)); err != nil {
			return err
		}
	}
	return errors.Join(x.Wait(), to.End())
}

// times is a histogram of n packets of one size; and adds more.
func times(n, size int) *kern.Hist { return and(&kern.Hist{}, n, size) }

func and(h *kern.Hist, n, size int) *kern.Hist {
	for range n {
		h.Add(uint64(size))
	}
	return h
}

// hists is the histograms by place.
func hists(x *trial.Trial, rows []*row.Row) map[where]*kern.Hist {
	got := map[where]*kern.Hist{}
	for _, r := range rows {
		at := where{trial.Value(r.Get("metric")), trial.Value(r.Get("dev")), trial.Value(r.Get("netns"))}
		if got[at] != nil {
			x.Errorf("two rows of %v", at)
		}
		got[at] = r.Get("bytes").Ref.(*kern.Hist)
	}
	return got
}

// compare looks at packets above 200 bytes, because IPv6 announces itself in
// smaller ones.
func compare(x *trial.Trial, rows []*row.Row, want map[where]*kern.Hist) {
	got := hists(x, rows)
	least := slices.IndexFunc(times(1, 200).Slots[:], func(n uint64) bool { return n > 0 })
	for at, h := range want {
		if got[at] == nil {
			x.Errorf("no row of %v", at)
			continue
		}
		if !slices.Equal(got[at].Slots[least:], h.Slots[least:]) || got[at].Max != h.Max {
			x.Errorf("%v: up to %d, %v; want up to %d, %v", at, got[at].Max, got[at].Buckets(), h.Max, h.Buckets())
		}
	}
	for at, h := range got {
		if want[at] == nil && h.Max > 200 {
			x.Errorf("a row of %v, want none: %v", at, h.Buckets())
		}
	}
	x.NoneLost()
}

// all is a metric of all devices.
func all(metric string) where { return where{metric, "-", "-"} }

// sizes: over a plain link nothing is segmented or merged.
func sizes(x *trial.Trial) error {
	if err := x.Attach(); err != nil {
		return err
	}
	sent, received := &kern.Hist{}, &kern.Hist{}
	for _, m := range []lab.Marks{
		{Network: lab.UDP4, None: 23, Size: 300},
		{Network: lab.UDP6, None: 17, Size: 1000},
		{Network: lab.UDP4, None: 11, Size: 1472},
	} {
		if err := send(x.World, m, false); err != nil {
			return err
		}
		and(sent, m.None, ethernet+headers[m.Network]+m.Size)
		and(received, m.None, headers[m.Network]+m.Size)
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	compare(x, rows, map[where]*kern.Hist{all("send"): sent, all("nic_send"): sent, all("recv"): received})
	return nil
}
