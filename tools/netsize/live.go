// SPDX-License-Identifier: Apache-2.0

package netsize

import (
	"errors"
	"fmt"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "segments", Hosts: lab.TwoHosts, Run: segments},
		{Name: "tcp", Hosts: lab.TwoHosts, Run: tcp},
		{Name: "frags", Run: frags},
		{Name: "loopback", Run: loopback},
		{Name: "devices", Hosts: []string{"client", "router", "server"}, Run: devices},
	}
}

// wire makes the link between the hosts like one of cards.
func wire(x *trial.Trial) (func() error, error) {
	c, err := x.World.Wire("server", "eth0")
	if errors.Is(err, lab.ErrNotSupported) {
		return nil, trial.Skip("%v", err)
	} else if err != nil {
		return nil, err
	}
	return c.Close, nil
}

// segments: a large packet is segmented on its way to the driver, and merged
// again on its way from the driver.
func segments(x *trial.Trial) error {
	unwire, err := wire(x)
	if err != nil {
		return err
	}
	defer unwire()
	if err := x.Attach(); err != nil {
		return err
	}
	const sends, segs = 13, 11
	var sent, cut, arrived, joined kern.Hist
	for _, m := range []lab.Marks{
		// The sends follow each other on one processor, so each poll
		// finds the packets of one send.
		{Network: lab.UDP4, None: sends, Size: 500, Segments: segs, Stepwise: true},
		{Network: lab.UDP6, None: sends, Size: 1300, Segments: segs, Stepwise: true},
	} {
		if err := send(x.World, m, true); err != nil {
			return err
		}
		h := headers[m.Network]
		and(&sent, sends, ethernet+h+segs*m.Size)
		and(&cut, sends*segs, ethernet+h+m.Size)
		and(&arrived, sends*segs, h+m.Size)
		and(&joined, sends, h+segs*m.Size)
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	compare(x, rows, map[where]*kern.Hist{
		all("send"): &sent, all("nic_send"): &cut, all("nic_recv"): &arrived, all("recv"): &joined,
	})
	return nil
}

// tcp: packets at the device are not larger than its MTU; packets of the stack
// are.
func tcp(x *trial.Trial) error {
	unwire, err := wire(x)
	if err != nil {
		return err
	}
	defer unwire()
	if err := errors.Join(x.World.NoIPv6("client", "eth0"), x.World.NoIPv6("server", "eth0")); err != nil {
		return err
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 200_000, Recv: 1})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error {
		_, err := t.Run()
		return errors.Join(err, x.World.AwaitClosed("client", t.Port), x.World.AwaitClosed("server", t.Port))
	}, "--by=dev,netns")
	if err != nil {
		return err
	}
	got := hists(x, rows)
	at := func(metric, host string) where { return where{metric, "eth0", fmt.Sprint(x.World.Netns(host))} }
	sent, cut := got[at("send", "client")], got[at("nic_send", "client")]
	arrived, joined := got[at("nic_recv", "server")], got[at("recv", "server")]
	if sent == nil || cut == nil || arrived == nil || joined == nil {
		return fmt.Errorf("not all four of a device: %v", got)
	}
	if cut.Max > ethernet+1500 || arrived.Max > 1500 || sent.Max < 3000 || joined.Max < 2000 {
		x.Errorf("the largest: %d sent, %d of them to the driver; %d from the driver, %d received", sent.Max, cut.Max, arrived.Max, joined.Max)
	}
	if cut.Count != arrived.Count || cut.Sum != arrived.Sum+ethernet*arrived.Count {
		x.Errorf("%d packets of %d bytes to one driver, %d of %d from the other, want the same", cut.Count, cut.Sum, arrived.Count, arrived.Sum)
	}
	if sent.Count >= cut.Count || joined.Count >= arrived.Count {
		x.Errorf("%d packets sent as %d, %d received as %d: nothing was cut or put together", sent.Count, cut.Count, arrived.Count, joined.Count)
	}
	return nil
}

// frags: a driver that hands over pages.
func frags(x *trial.Trial) error {
	tap, err := x.World.OpenTap("", "tap0")
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	defer tap.Close()
	rows, err := x.Rows(func() error { return tap.Receive(29, 700) }, "--by=dev")
	if err != nil {
		return err
	}
	compare(x, rows, map[where]*kern.Hist{
		{"nic_recv", "tap0", "-"}: times(29, 700-ethernet), {"recv", "tap0", "-"}: times(29, 700-ethernet),
	})
	return nil
}

// loopback: the device has no driver that polls.
func loopback(x *trial.Trial) error {
	rows, err := x.Rows(func() error {
		return send(x.World, lab.Marks{Network: lab.UDP6, None: 19, Size: 2000}, false)
	}, "--by=dev")
	if err != nil {
		return err
	}
	size := ethernet + headers[lab.UDP6] + 2000
	compare(x, rows, map[where]*kern.Hist{
		{"send", "lo", "-"}: times(19, size), {"nic_send", "lo", "-"}: times(19, size), {"recv", "lo", "-"}: times(19, size-ethernet),
	})
	return nil
}

// devices: a router, and a filter for one of its devices.
func devices(x *trial.Trial) error {
	w := x.World
	if err := w.Via("client", "router", "server"); err != nil {
		return err
	}
	in, out := w.Dev("router", "client"), w.Dev("router", "server")
	router := fmt.Sprint(w.Netns("router"))
	for _, flags := range [][]string{{"--by=dev,netns"}, {"--by=dev,netns", "--dev=" + out}} {
		rows, err := x.Rows(func() error {
			return send(w, lab.Marks{Network: lab.UDP4, None: 31, Size: 900}, false)
		}, flags...)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(r *row.Row) bool { return trial.Value(r.Get("netns")) != router })
		size := headers[lab.UDP4] + 900
		want := map[where]*kern.Hist{
			{"recv", in, router}:      times(31, size),
			{"send", out, router}:     times(31, size+ethernet),
			{"nic_send", out, router}: times(31, size+ethernet),
		}
		if len(flags) > 1 {
			delete(want, where{"recv", in, router})
		}
		compare(x, rows, want)
	}
	return nil
}
