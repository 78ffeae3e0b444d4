// SPDX-License-Identifier: Apache-2.0

package qdisclat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// The rate of most queues here: 1,000 bytes take a millisecond.
const (
	rate  = 1_000_000
	frame = 1000
	burst = 5 * frame
)

var root = uint32(netlink.HANDLE_ROOT)

// shaped is the kinds with a name of their own, with a rate where they have
// one.
var shaped = []lab.Qdisc{
	{Kind: "tbf", Rate: rate, Burst: burst, Limit: 1 << 20},
	{Kind: "fq"},
	{Kind: "cbs", Rate: rate, Burst: burst},
	{Kind: "codel"},
	{Kind: "fq_codel"},
	{Kind: "red", Limit: 1 << 20},
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		for _, q := range shaped {
			err := overTap(w, q, func(*lab.Tap) error {
				if _, err := w.SendFrames("", "tap0", 41, frame); err != nil {
					return err
				}
				return drained(w, "", "tap0")
			})
			if err != nil && !errors.Is(err, lab.ErrNotSupported) {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "rate", Run: trial.Undisturbed(shapedRate)},
}

// overTap opens a device with a queue. The device sends nothing by itself.
func overTap(w *lab.World, q lab.Qdisc, do func(*lab.Tap) error, more ...uint16) error {
	tap, err := w.OpenTap("", "tap0", more...)
	if err != nil {
		return err
	}
	defer tap.Close()
	if err := w.SetQdisc("", "tap0", q); err != nil {
		return err
	}
	return do(tap)
}

// drained waits until the queue of a device is empty. The queue is empty
// shortly before the tracepoint fires for the last packet, on the processor
// that takes it out.
func drained(w *lab.World, host, dev string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := w.QdiscCount(host, dev, root)
		if err != nil {
			return err
		}
		if c.Waiting == 0 {
			return lab.OnEachCPU()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d packets have not left the queue of %s", c.Waiting, dev)
		}
	}
}

// unsupported turns an error about a missing feature into a skip.
func unsupported(err error) error {
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	return err
}

// count is the numbers of a row.
type count struct{ timed, split, requeued, unknown, bypassed, dropped uint64 }

// of reads a row and checks that its sum is right.
func of(x *trial.Trial, r *row.Row) (count, *kern.Hist) {
	h := r.Get("latency_us").Ref.(*kern.Hist)
	n := func(id string) uint64 { return r.Get(id).N }
	c := count{h.Count, n("split"), n("requeued"), n("unknown"), n("bypassed"), n("dropped")}
	if n("dequeued") != c.timed+c.requeued+c.unknown {
		x.Errorf("%d dequeued, but %+v", n("dequeued"), c)
	}
	return c, h
}

// least is how many of n packets must be seen. If a process is exempt from BPF,
// packets that a softirq sends on top of it are not seen (see the README). If a
// timer sends packets one by one, the share of missing packets is the process's
// share of a processor. In guests no process is exempt, and no packet is missing.
func least(n uint64) uint64 {
	if lab.Emulated() {
		return n
	}
	return n - min(n, 2+n/10)
}

// same compares two counts, as least allows.
func same(c, want count) bool {
	near := func(a, b uint64) bool { return a >= least(b) && a <= b }
	return near(c.timed, want.timed) && near(c.split, want.split) && near(c.requeued, want.requeued) &&
		near(c.unknown, want.unknown) && near(c.bypassed, want.bypassed) && near(c.dropped, want.dropped)
}

// unlike is an error that says how c differs from want. If only pieces with a time
// are missing, it is a trial.Missing.
func unlike(c, want count) error {
	if same(c, want) {
		return nil
	}
	rest := want
	rest.timed, rest.split = c.timed, c.split
	if c.split <= want.split && same(c, rest) {
		return trial.Fewer(int(c.timed), int(want.timed), "%+v, want %+v", c, want)
	}
	return fmt.Errorf("%+v, want %+v", c, want)
}

// single is the only row; there must be exactly one.
func single(x *trial.Trial, rows []*row.Row) (count, *kern.Hist, error) {
	x.NoneLost()
	if len(rows) != 1 {
		var all []string
		for _, r := range rows {
			all = append(all, trial.Dump(r))
		}
		return count{}, nil, fmt.Errorf("%d rows, want one: %s", len(rows), strings.Join(all, "; "))
	}
	c, h := of(x, rows[0])
	return c, h, nil
}

// shapedRate: the rate says how long packets wait.
func shapedRate(x *trial.Trial) error {
	return unsupported(overTap(x.World, shaped[0], func(*lab.Tap) error {
		const n = 101
		return rated(x, root, n, "tbf", "--by=dev,kind,handle,parent")
	}))
}

// rated sends n frames at once and compares what is seen of the queue with that
// parent. burst bytes leave at once, and the rest leaves at the rate. The kernel
// says how many the queue dropped: codel drops one if a busy machine is late.
func rated(x *trial.Trial, parent uint32, n int, flags ...string) error {
	if err := x.Attach(flags...); err != nil {
		return err
	}
	before, err := x.World.QdiscCount("", "tap0", parent)
	if err != nil {
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
	late := time.Since(begun)
	after, err := x.World.QdiscCount("", "tap0", parent)
	if err != nil {
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
	dropped := uint64(after.Since(before).Dropped)
	x.Fail(unlike(c, count{timed: uint64(n) - dropped, dropped: dropped}))
	x.Want(rows[0], "dev", "tap0")
	// The k-th frame cannot leave before the rate allows it, and it was sent at some
	// time during the sending. If some frames were not seen (see least), these may be
	// the last ones.
	var sum time.Duration
	wait := func(k int) time.Duration {
		return max(0, time.Duration(k*frame-burst)*time.Second/rate-sending)
	}
	for k := 1; k <= int(c.timed); k++ {
		sum += wait(k)
	}
	if got := time.Duration(h.Max) * time.Microsecond; got < wait(int(c.timed))*98/100 || got > late {
		x.Errorf("the last waited for %v, want %v to %v", got, wait(int(c.timed)), late)
	}
	if got := time.Duration(h.Sum) * time.Microsecond; got < sum*98/100 {
		x.Errorf("all waited for %v, want %v at least", got, sum)
	}
	return nil
}
