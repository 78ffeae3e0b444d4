// SPDX-License-Identifier: Apache-2.0

package qdisclat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "split", Hosts: lab.TwoHosts, Run: trial.Undisturbed(split)},
		{Name: "split-drops", Hosts: lab.TwoHosts, Run: trial.Undisturbed(splitDrops)},
		{Name: "split-gone", Hosts: lab.TwoHosts, Run: trial.Undisturbed(splitGone)},
		{Name: "tcp", Hosts: lab.TwoHosts, Run: trial.Undisturbed(tcp(lab.Qdisc{Kind: "tbf", Rate: less(rate), Burst: 2 * frame, Limit: 20_000}))},
		{Name: "tcp-whole", Hosts: lab.TwoHosts, Run: trial.Undisturbed(tcp(lab.Qdisc{Kind: "tbf", Rate: less(rate), Burst: 70_000, Limit: 100_000}))},
		{Name: "tcp-cake", Hosts: lab.TwoHosts, Run: trial.Undisturbed(tcp(lab.Qdisc{Kind: "cake", Rate: less(rate)}))},
		{Name: "kinds", Run: trial.Undisturbed(everyKind)},
		{Name: "drops", Run: trial.Undisturbed(drops)},
		{Name: "bulk", Run: trial.Undisturbed(bulk)},
		{Name: "before", Run: trial.Undisturbed(before)},
		{Name: "bypass", Run: trial.Undisturbed(bypass)},
		{Name: "requeues", Hosts: lab.TwoHosts, Run: trial.Undisturbed(requeues)},
		{Name: "card", Run: card},
		{Name: "children", Run: trial.Undisturbed(children)},
		{Name: "messages", Run: messages},
	}
}

// counted ends the tool. Its only row must have these numbers.
func counted(x *trial.Trial, want count) error {
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	c, _, err := single(x, rows)
	if err == nil {
		x.Fail(unlike(c, want))
	}
	return err
}

// split: tbf cuts packets that are larger than its burst. Each piece has a
// time.
func split(x *trial.Trial) error {
	w := x.World
	if err := w.NoIPv6("client", "eth0"); err != nil {
		return err
	}
	if err := w.SetQdisc("client", "eth0", lab.Qdisc{Kind: "tbf", Rate: rate, Burst: 2 * frame, Limit: 1 << 20}); err != nil {
		return unsupported(err)
	}
	to, err := lab.StartTargets(w, "server", "sink", lab.Target{Network: lab.UDP4})
	if err != nil {
		return err
	}
	const sends, segs, size = 13, 11, 958 // with headers a frame
	s, err := lab.StartMarks(w, "client", "sender", lab.Marks{Network: lab.UDP4, Addr: to.Addrs[0], None: sends, Size: size, Segments: segs})
	if err != nil {
		return err
	}
	if err := x.Attach("--by=dev,kind"); err != nil {
		return err
	}
	begun := time.Now()
	if err := s.Run(); err != nil {
		return err
	}
	sending := uint64(time.Since(begun).Microseconds()) // the socket has room for so many
	if err := errors.Join(drained(w, "client", "eth0"), to.End()); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	c, h, err := single(x, rows)
	if err != nil {
		return err
	}
	if err := unlike(c, count{timed: sends * segs, split: sends * segs}); err != nil {
		k, _ := w.QdiscCount("client", "eth0", root)
		x.Fail(fmt.Errorf("%w; the queue says %+v", err, k))
	}
	if least := (max(c.timed, 2+9) - 2 - 9) * 1000; h.Max+sending < least {
		x.Errorf("the last waited for %d us, sending took %d, want %d at least together", h.Max, sending, least)
	}
	return nil
}

// splitDrops: there is room for some of the pieces. The queue counts the others.
func splitDrops(x *trial.Trial) error {
	w := x.World
	if err := w.NoIPv6("client", "eth0"); err != nil {
		return err
	}
	if err := w.SetQdisc("client", "eth0", lab.Qdisc{Kind: "tbf", Rate: rate, Burst: 2 * frame, Limit: 17 * frame}); err != nil {
		return unsupported(err)
	}
	begun, err := w.QdiscCount("client", "eth0", root)
	if err != nil {
		return err
	}
	to, err := lab.StartTargets(w, "server", "sink", lab.Target{Network: lab.UDP4})
	if err != nil {
		return err
	}
	const sends, segs, size = 3, 23, 958 // with headers a frame
	if err := x.Attach("--by=dev,kind"); err != nil {
		return err
	}
	for range sends { // each one finds an empty queue
		s, err := lab.StartMarks(w, "client", "sender", lab.Marks{Network: lab.UDP4, Addr: to.Addrs[0], None: 1, Size: size, Segments: segs})
		if err != nil {
			return err
		}
		if err := errors.Join(s.Run(), drained(w, "client", "eth0")); err != nil {
			return err
		}
	}
	if err := to.End(); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	c, _, err := single(x, rows)
	if err != nil {
		return err
	}
	k, err := w.QdiscCount("client", "eth0", root)
	if err != nil {
		return err
	}
	if k = k.Since(begun); k.Dropped == 0 || k.Packets == 0 {
		return fmt.Errorf("the queue says %+v: want some dropped, and some not", k)
	}
	if c.timed != uint64(k.Packets) || c.dropped != uint64(k.Dropped) || c.timed+c.dropped != sends*segs {
		x.Errorf("%+v of %d pieces; the queue says %+v", c, sends*segs, k)
	}
	return nil
}

// splitGone: the map has room for one queue that cuts packets. When that queue is
// deleted, there is room for the next one.
func splitGone(x *trial.Trial) error {
	w := x.World
	const sends, segs, size = 3, 7, 958 // with headers a frame
	hosts := []string{"client", "server"}
	var senders []*lab.Marking
	for i, host := range hosts {
		if err := errors.Join(w.NoIPv6(host, "eth0"), w.SetQdisc(host, "eth0", lab.Qdisc{Kind: "tbf", Rate: rate, Burst: 2 * frame, Limit: 1 << 20})); err != nil {
			return unsupported(err)
		}
		to, err := lab.StartTargets(w, hosts[1-i], "sink", lab.Target{Network: lab.UDP4})
		if err != nil {
			return err
		}
		defer to.End()
		s, err := lab.StartMarks(w, host, "sender", lab.Marks{Network: lab.UDP4, Addr: to.Addrs[0], None: sends, Size: size, Segments: segs})
		if err != nil {
			return err
		}
		senders = append(senders, s)
	}
	if err := x.Attach("--by=kind", "--kind=tbf", "--memory=256k"); err != nil {
		return err
	}
	for i, host := range hosts {
		if err := errors.Join(senders[i].Run(), drained(w, host, "eth0"), w.SetQdisc(host, "eth0", lab.Qdisc{Kind: "pfifo", Limit: 100})); err != nil {
			return err
		}
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	c, _, err := single(x, rows)
	if err != nil {
		return err
	}
	x.Fail(unlike(c, count{timed: 2 * sends * segs, split: 2 * sends * segs}))
	x.NoneLost()
	return nil
}

// less is a tenth of n on an emulated machine, which is not always faster than n.
func less(n int) int {
	if lab.Emulated() {
		return n / 10
	}
	return n
}

// tcp: the queue drops pieces of TCP's large packets, or whole packets. The
// timestamps that TCP put into the others say how long they waited.
func tcp(q lab.Qdisc) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		if err := w.NoIPv6("client", "eth0"); err != nil {
			return err
		}
		if err := w.SetQdisc("client", "eth0", q); err != nil {
			return unsupported(err)
		}
		begun, err := w.QdiscCount("client", "eth0", root)
		if err != nil {
			return err
		}
		t, err := lab.StartTCP(w, lab.Sessions{Send: less(700_001), Recv: 1})
		if err != nil {
			return err
		}
		capture, err := w.Capture("client", "eth0", t.Port)
		if err != nil {
			return err
		}
		rows, err := x.Rows(func() error {
			_, err := t.Run()
			return errors.Join(err, drained(w, "client", "eth0"))
		}, q.Kind, "--by=dev,kind")
		if err != nil {
			return err
		}
		c, h, err := single(x, rows)
		if err != nil {
			return err
		}
		k, err := w.QdiscCount("client", "eth0", root)
		if err != nil {
			return err
		}
		k = k.Since(begun)
		waits, err := capture.Waits()
		if err != nil {
			return err
		}
		// Besides the data there are a SYN, an acknowledgement or two and a FIN.
		if n := uint64(len(waits)); c.timed < least(n) || c.timed > n+9 || c.unknown+c.requeued+c.bypassed > n-least(n) || (c.split > 0) != (q.Burst < 70_000) {
			x.Errorf("%+v of %d segments; the queue says %+v", c, n, k)
		}
		// A packet counts as one drop if no piece of it had room.
		if q.Kind == "tbf" && (c.dropped > uint64(k.Dropped) || (c.dropped > 0) != (k.Dropped > 0)) {
			x.Errorf("%d dropped, the queue says %+v", c.dropped, k)
		}
		slices.Sort(waits)
		share := func(percent int) time.Duration { return waits[(len(waits)-1)*percent/100] }
		last := float64(h.Max)
		if !lab.Emulated() { // the time of a packet that left unseen may go to another one: see least
			last = h.Quantile(0.98)
		}
		// The sender's clock counts milliseconds. On an emulated machine a packet may
		// take ten from TCP to the queue; there the queue holds packets for 200.
		d := 5 * time.Millisecond
		if lab.Emulated() {
			d *= 4
		}
		for what, is := range map[string]struct{ got, least, most time.Duration }{
			"90 of 100 packets waited for": {time.Duration(h.Quantile(0.9)) * time.Microsecond, share(80), share(97)},
			"the last waited for":          {time.Duration(last) * time.Microsecond, share(95), share(100)},
		} {
			if is.got < is.least-d || is.got > is.most+d {
				x.Errorf("%s %v, by TCP's timestamps %v to %v", what, is.got, is.least, is.most)
			}
		}
		return nil
	}
}

// everyKind: each kind in turn, as the root queue. Packets that bypass the
// empty queue are counted as bypassed.
func everyKind(x *trial.Trial) error {
	tested := 0
	for _, q := range shaped {
		err := overTap(x.World, q, func(*lab.Tap) error {
			tested++
			const n = 53
			if err := x.Attach(q.Kind); err != nil {
				return err
			}
			begun := time.Now()
			if _, err := x.World.SendFrames("", "tap0", n, frame); err != nil {
				return err
			}
			sending := time.Since(begun)
			if err := drained(x.World, "", "tap0"); err != nil {
				return err
			}
			rows, err := x.Detach()
			if err != nil {
				return err
			}
			c, h, err := single(x, rows)
			if err != nil {
				return fmt.Errorf("%s: %w", q.Kind, err)
			}
			want := count{timed: n}
			if strings.Contains(q.Kind, "codel") {
				want = count{bypassed: n}
			}
			if !same(c, want) {
				x.Errorf("%s: %+v, want %+v", q.Kind, c, want)
			}
			x.Want(rows[0], "kind", q.Kind)
			if q.Rate > 0 && time.Duration(h.Max)*time.Microsecond+sending < 20*time.Millisecond {
				x.Errorf("%s: the last waited for %d us, and sending took %v, want some 40,000 together", q.Kind, h.Max, sending)
			}
			return nil
		})
		if err != nil && !errors.Is(err, lab.ErrNotSupported) {
			return err
		}
	}
	if tested == 0 {
		return trial.Skip("none of the queueing disciplines is here")
	}
	return nil
}

// drops: the tool counts as many drops as the queue itself.
func drops(x *trial.Trial) error {
	const n, room = 61, 20
	return held(x, room*frame, func(letGo func() error) error {
		begun, err := x.World.QdiscCount("", "tap0", root)
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		if _, err := x.World.SendFrames("", "tap0", n, frame); err != nil {
			return err
		}
		if err := letGo(); err != nil {
			return err
		}
		k, err := x.World.QdiscCount("", "tap0", root)
		if err != nil {
			return err
		}
		k = k.Since(begun)
		want := count{timed: uint64(k.Packets), dropped: uint64(k.Dropped)}
		if want.timed+want.dropped != n+1 || want.dropped < n-room {
			x.Errorf("the queue says %+v: want %d packets, of which it has room for %d", k, n+1, room)
		}
		return counted(x, want)
	})
}

// held is a queue with room for n bytes. Its frames leave together when it is
// released.
func held(x *trial.Trial, room int, do func(letGo func() error) error, more ...uint16) error {
	slow := lab.Qdisc{Kind: "tbf", Handle: netlink.MakeHandle(1, 0), Rate: 100, Burst: 2 * frame, Limit: room}
	return unsupported(overTap(x.World, slow, func(*lab.Tap) error {
		// The burst leaves at once.
		if _, err := x.World.SendFrames("", "tap0", 2, frame); err != nil {
			return err
		}
		return do(func() error {
			fast := slow
			fast.Rate, fast.Burst = 1<<30, 1<<20
			if err := x.World.SetQdisc("", "tap0", fast); err != nil {
				return err
			}
			if _, err := x.World.SendFrames("", "tap0", 1, frame); err != nil {
				return err
			}
			return drained(x.World, "", "tap0")
		})
	}, more...))
}

// bulk: a device of several queues is given several packets at a time.
func bulk(x *trial.Trial) error {
	return held(x, 1<<20, func(letGo func() error) error {
		const n = 97
		if err := x.Attach(); err != nil {
			return err
		}
		if _, err := x.World.SendFrames("", "tap0", n, frame); err != nil {
			return err
		}
		if err := letGo(); err != nil {
			return err
		}
		return counted(x, count{timed: n + 1})
	}, unix.IFF_MULTI_QUEUE)
}

// before: packets that were in the queue before the tool have no time.
func before(x *trial.Trial) error {
	return held(x, 1<<20, func(letGo func() error) error {
		const n, later = 17, 5
		if _, err := x.World.SendFrames("", "tap0", n, frame); err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		if _, err := x.World.SendFrames("", "tap0", later, frame); err != nil {
			return err
		}
		if err := letGo(); err != nil {
			return err
		}
		return counted(x, count{timed: later + 1, unknown: n})
	})
}

// bypass: packets bypass an empty pfifo, also those that are segmented behind
// it.
func bypass(x *trial.Trial) error {
	return unsupported(overTap(x.World, lab.Qdisc{Kind: "pfifo", Limit: 1000}, func(*lab.Tap) error {
		rows, err := x.Rows(func() error {
			_, err := x.World.SendFrames("", "tap0", 37, frame)
			return err
		})
		if err != nil {
			return err
		}
		c, _, err := single(x, rows)
		if err != nil {
			return err
		}
		if want := (count{bypassed: 37}); !same(c, want) {
			x.Errorf("%+v, want %+v", c, want)
		}
		return nil
	}))
}

// requeues: a driver that has no room gives packets back.
func requeues(x *trial.Trial) error {
	w := x.World
	if err := w.SetQdisc("client", "eth0", lab.Qdisc{Kind: "pfifo", Limit: 1000}); err != nil {
		return unsupported(err)
	}
	begun, err := w.QdiscCount("client", "eth0", root)
	if err != nil {
		return err
	}
	if err := x.Attach("pfifo"); err != nil {
		return err
	}
	var k lab.QdiscCount
	n := uint64(0)
	for range 5 { // until the ring was full for once
		if _, err := w.SendStalled("client", "server", 601, frame); err != nil {
			return unsupported(err)
		}
		if err := drained(w, "client", "eth0"); err != nil {
			return err
		}
		n += 601
		if k, err = w.QdiscCount("client", "eth0", root); err != nil {
			return err
		}
		if k = k.Since(begun); k.Requeued > 0 {
			break
		}
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if k.Requeued == 0 {
		return trial.Skip("veth gave nothing back: before 6.16 it drops what it has no room for")
	}
	c, _, err := single(x, rows)
	if err != nil {
		return err
	}
	// IPv6 announces itself to its neighbours.
	if c.timed == 0 || c.timed+c.bypassed < n-2 || c.timed+c.bypassed > n+9 || c.unknown+c.dropped+c.split > 2 {
		x.Errorf("%+v, want %d timed and bypassed together", c, n)
	}
	if !same(c, count{c.timed, c.split, uint64(k.Requeued), c.unknown, c.bypassed, c.dropped}) {
		x.Errorf("%+v, want %d requeued", c, k.Requeued)
	}
	return nil
}

// card: the network card of a guest, which is slow enough for queues to form.
func card(x *trial.Trial) error {
	dev, err := x.World.Card("", "virtio_net")
	if err != nil {
		return unsupported(err)
	}
	for _, kind := range []string{"codel", "fq_codel", "fq", "pfifo"} {
		if err := x.World.SetQdisc("", dev, lab.Qdisc{Kind: kind, Limit: 1000}); err != nil {
			return err
		}
		const n = 2003
		if err := x.Attach(kind); err != nil {
			return err
		}
		if _, err := x.World.SendFrames("", dev, n, 1400); err != nil {
			return err
		}
		if err := drained(x.World, "", dev); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		c, _, err := single(x, rows)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if c.timed+c.bypassed+c.dropped != n || c.unknown != 0 {
			x.Errorf("%s: %+v, want %d timed, bypassed and dropped together", kind, c, n)
		}
	}
	return nil
}

// children: a queue below another one, seen by probes on its functions.
func children(x *trial.Trial) error {
	k, err := probe.Running()
	if err != nil {
		return err
	}
	if err := k.Offers()["kprobe"]; err != nil {
		return trial.Skip("%v", err)
	}
	for _, kind := range []string{"codel", "fq_codel", "fq", "red"} {
		handle := netlink.MakeHandle(1, 0)
		err := overTap(x.World, lab.Qdisc{Kind: "tbf", Handle: handle, Rate: rate, Burst: burst, Limit: 1 << 20}, func(*lab.Tap) error {
			if err := x.World.SetQdisc("", "tap0", lab.Qdisc{Kind: kind, Parent: handle | 1, Limit: 1 << 20}); err != nil {
				return err
			}
			return rated(x, handle|1, 31, kind, "--by=dev,kind,parent")
		})
		if err != nil && !errors.Is(err, lab.ErrNotSupported) {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// messages: each reason for seeing nothing has a message of its own.
func messages(x *trial.Trial) error {
	w := x.World
	note := func(want string, flags ...string) {
		if err := x.Attach(flags...); err != nil {
			x.Errorf("%v: %v", flags, err)
			return
		}
		if _, err := x.Detach(); err != nil {
			x.Errorf("%v: %v", flags, err)
		}
		if got := strings.Join(x.Notes, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			x.Errorf("%v: %q, want %q", flags, got, want)
		}
	}
	refused := func(want string, flags ...string) {
		err := x.Attach(flags...)
		if err == nil {
			x.Detach()
		}
		if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), want) {
			x.Errorf("%v: %v, want that it is not supported: %s", flags, err, want)
		}
	}
	note("no device has a queue")
	note("no device uses tbf", "tbf")
	refused("CBQ no longer exists", "cbq")
	refused("there is no queueing discipline fq_coddle, built in or as a module sch_fq_coddle: did you mean fq_codel?", "fq_coddle")
	return unsupported(overTap(w, shaped[0], func(*lab.Tap) error {
		note("", "tbf")
		note("no device uses tbf", "tbf", "--dev=lo")
		k, err := probe.Running()
		if err != nil {
			return err
		}
		handle := netlink.MakeHandle(1, 0)
		if err := w.SetQdisc("", "tap0", lab.Qdisc{Kind: "htb", Handle: handle, Rate: rate, Burst: burst}); err != nil {
			return err
		}
		inner := shaped[0]
		inner.Parent = handle | 1
		if err := w.SetQdisc("", "tap0", inner); err != nil {
			return err
		}
		if k.Offers()["kprobe"] == nil {
			note("", "tbf")
		} else {
			refused("tbf of tap0 is below htb: without kprobes", "tbf")
		}
		return nil
	}))
}
