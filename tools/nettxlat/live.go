// SPDX-License-Identifier: Apache-2.0

package nettxlat

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "veth", Hosts: lab.TwoHosts, Run: veth},
		{Name: "napi", Hosts: lab.TwoHosts, Run: napi},
		{Name: "loopback", Run: loopback},
		{Name: "dropped", Run: dropped},
		{Name: "passed", Hosts: lab.TwoHosts, Run: passed},
		{Name: "virtio", Run: virtio},
	}
}

// send makes the first host send datagrams to the last one.
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

// napi: the peer polls and merges packets.
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

// dropped: the device is full, because nobody reads from it.
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
		// The driver frees sent packets when it sends more, and counts
		// them then.
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
