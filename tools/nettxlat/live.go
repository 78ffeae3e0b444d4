// SPDX-License-Identifier: Apache-2.0

package nettxlat

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 41, Send: 300, Recv: 30_000}); err != nil {
			return err
		}
		// A device that takes its time.
		tap, err := w.OpenTap("client", "tap0")
		if errors.Is(err, lab.ErrNotSupported) {
			return nil
		} else if err != nil {
			return err
		}
		defer tap.Close()
		for range 11 {
			if _, err := w.SendFrames("client", "tap0", 3, 700); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
			if err := tap.Drain(3); err != nil {
				return err
			}
		}
		return nil
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "tap", Run: tap},
	{Name: "veth", Hosts: lab.TwoHosts, Run: veth},
	{Name: "napi", Hosts: lab.TwoHosts, Run: napi},
	{Name: "loopback", Run: loopback},
	{Name: "dropped", Run: dropped},
	{Name: "passed", Hosts: lab.TwoHosts, Run: passed},
	{Name: "virtio", Run: virtio},
}

// ends is a row's device and how packets ended.
type ends struct{ dev, end string }

// hists is the histograms by device and end.
func hists(x *trial.Trial, rows []*row.Row) map[ends]*kern.Hist {
	got := map[ends]*kern.Hist{}
	for _, r := range rows {
		got[ends{trial.Value(r.Get("dev")), trial.Value(r.Get("end"))}] = r.Get("latency_us").Ref.(*kern.Hist)
	}
	x.NoneLost()
	return got
}

// counts compares how many packets of a device came to which end.
func counts(x *trial.Trial, got map[ends]*kern.Hist, want map[ends]uint64) {
	for at, n := range want {
		if h := got[at]; h == nil || h.Count != n {
			x.Errorf("%v: %v, want %d packets", at, got[at], n)
		}
	}
	for at, h := range got {
		if _, ok := want[at]; !ok {
			x.Errorf("%d packets of %v, want none", h.Count, at)
		}
	}
}

// unsupported turns what a kernel lacks into a skip.
func unsupported(err error) error {
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	return err
}

// tap: the device keeps packets until we, its driver, take them.
func tap(x *trial.Trial) error {
	t, err := x.World.OpenTap("", "tap0")
	if err != nil {
		return unsupported(err)
	}
	defer t.Close()
	const n, wait = 23, 50 * time.Millisecond
	var begun, sent time.Time
	rows, err := x.Rows(func() error {
		begun = time.Now()
		if _, err := x.World.SendFrames("", "tap0", n, 700); err != nil {
			return err
		}
		sent = time.Now()
		time.Sleep(wait)
		return t.Drain(n)
	}, "--by=dev")
	if err != nil {
		return err
	}
	most := uint64(time.Since(begun).Microseconds())
	got := hists(x, rows)
	counts(x, got, map[ends]uint64{{"tap0", "freed"}: n})
	if h := got[ends{"tap0", "freed"}]; h != nil && (h.Min < uint64(wait.Microseconds()) || h.Max > most) {
		x.Errorf("kept for %d to %d us, want at least %v, and %v more for what was sent first", h.Min, h.Max, wait, sent.Sub(begun))
	}
	return nil
}

// send has the first host send datagrams to the last one.
func send(w *lab.World, n int) error {
	f, err := lab.StartFlood(w, lab.Flood{Count: n, Size: 100})
	if err != nil {
		return err
	}
	r, err := f.Run()
	if err == nil && r.Received != n {
		err = fmt.Errorf("%d datagrams received, want %d", r.Received, n)
	}
	return err
}

// veth hands packets to its peer's stack.
func veth(x *trial.Trial) error { return crossing(x, "client", "eth0") }

// napi: the peer polls, and puts packets together.
func napi(x *trial.Trial) error {
	if err := errors.Join(x.World.Join("client", "server"), x.World.NoIPv6("client", "eth0")); err != nil {
		return err
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 200_000, Recv: 1})
	if err != nil {
		return err
	}
	if err := x.AttachAll("--by=dev,end", fmt.Sprint("--netns=", x.World.Netns("client"))); err != nil {
		return err
	}
	before, err := x.World.Sent("client", "eth0")
	if err != nil {
		return err
	}
	if _, err := t.Run(); err != nil {
		return err
	}
	if err := errors.Join(x.World.AwaitClosed("client", t.Port), x.World.AwaitClosed("server", t.Port)); err != nil {
		return err
	}
	after, err := x.World.Sent("client", "eth0")
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if after-before < 3*200_000/1500 {
		x.Errorf("%d packets sent, want %d at least: nothing was cut", after-before, 3*200_000/1500)
	}
	counts(x, hists(x, rows), map[ends]uint64{{"eth0", "received"}: after - before})
	return nil
}

func loopback(x *trial.Trial) error { return crossing(x, "host", "lo") }

const packets = 197

// crossing: each packet is received by the stack at the other end.
func crossing(x *trial.Trial, host, dev string) error {
	if err := x.AttachAll("--by=dev,end", "--dev="+dev, fmt.Sprint("--netns=", x.World.Netns(host))); err != nil {
		return err
	}
	begun := time.Now()
	if err := send(x.World, packets); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	got := hists(x, rows)
	h := got[ends{dev, "received"}]
	if h == nil || h.Count < packets || h.Count > packets+9 {
		return fmt.Errorf("%v, want %d packets received, and what IPv6 tells its neighbours", got, packets)
	}
	counts(x, got, map[ends]uint64{{dev, "received"}: h.Count})
	if most := uint64(time.Since(begun).Microseconds()); h.Max > most {
		x.Errorf("up to %d us, of %d", h.Max, most)
	}
	return nil
}

// dropped: the device has no room for what it is not relieved of.
func dropped(x *trial.Trial) error {
	t, err := x.World.OpenTap("", "tap0")
	if err != nil {
		return unsupported(err)
	}
	defer t.Close()
	if err := x.World.QueueLength("", "tap0", 31); err != nil {
		return err
	}
	rows, err := x.Rows(func() error {
		if _, err := x.World.SendFrames("", "tap0", 31+17, 700); err != nil {
			return err
		}
		return t.Drain(31)
	}, "--by=dev")
	if err != nil {
		return err
	}
	counts(x, hists(x, rows), map[ends]uint64{{"tap0", "freed"}: 31, {"tap0", "dropped"}: 17})
	return nil
}

// passed: a device on another one.
func passed(x *trial.Trial) error {
	if err := x.World.Macvlan("client", "mac0", "eth0"); err != nil {
		return unsupported(err)
	}
	rows, err := x.Rows(func() error {
		return x.World.AwaitFrames("server", "eth0", 19, func() error {
			_, err := x.World.SendFrames("client", "mac0", 19, 700)
			return err
		})
	}, "--by=dev,end")
	if err != nil {
		return err
	}
	got := hists(x, rows)
	if h := got[ends{"mac0", "passed"}]; h == nil || h.Count != 19 {
		x.Errorf("%v of mac0, want 19 packets passed on", h)
	}
	if h := got[ends{"eth0", "received"}]; h == nil || h.Count < 19 {
		x.Errorf("%v of eth0, want 19 packets received", h)
	}
	return nil
}

// virtio: a card of a guest, where there is one.
func virtio(x *trial.Trial) error {
	dev, err := x.World.Card("", "virtio_net")
	if err != nil {
		return unsupported(err)
	}
	before, err := x.World.Sent("", dev)
	if err != nil {
		return err
	}
	const n = 101
	all := uint64(n)
	rows, err := x.Rows(func() error {
		if taken, err := x.World.SendFrames("", dev, n, 700); err != nil || taken < n {
			return fmt.Errorf("%s took %d of %d packets: %w", dev, taken, n, err)
		}
		// The driver frees what has been sent when it sends more, and counts it then.
		for end := time.Now().Add(time.Minute); ; all++ {
			time.Sleep(50 * time.Millisecond)
			sent, err := x.World.Sent("", dev)
			if err != nil || sent >= before+n {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s has freed %d of %d packets", dev, sent-before, n)
			}
			if _, err := x.World.SendFrames("", dev, 1, 700); err != nil {
				return err
			}
		}
	}, "--by=dev")
	if err != nil {
		return err
	}
	got := hists(x, rows)
	h := got[ends{dev, "freed"}]
	if h == nil || h.Count < n || h.Count > all || len(got) != 1 {
		x.Errorf("%v, want %d packets freed at least, of %d", got, n, all)
	}
	return nil
}
