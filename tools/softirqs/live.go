// SPDX-License-Identifier: Apache-2.0

package softirqs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "times", Run: times},
		{Name: "waits", Run: waits},
		{Name: "dist", Run: dist},
		{Name: "intervals", Run: intervals},
		{Name: "net", Run: network},
	}
}

// softirqs reads /proc/softirqs.
func softirqs() (lab.Interrupts, error) { return lab.ReadInterrupts("/proc/softirqs") }

// loaded describes a run of datagrams that keep a softirq busy.
type loaded struct {
	cpu   int
	busy  lab.BusyTime  // measured by the program that keeps it busy
	sent  time.Duration // time of sending, measured by the sender
	whole time.Duration // from before the tool was attached until it was detached
	rows  []*row.Row
}

// load sends n datagrams that keep the receiver's softirq busy.
func load(w *lab.World, n int) (l loaded, err error) {
	p, err := lab.StartPinned(w, "sender", n)
	if err != nil {
		return l, err
	}
	bz, err := lab.StartBusy(unix.IPPROTO_UDP, p.Port, 0)
	if err != nil {
		return l, err
	}
	defer bz.Close()
	l.cpu = p.CPU
	if l.sent, err = p.Run(); err != nil {
		return l, err
	}
	if l.busy, err = bz.Took(); err == nil && l.busy.Count != uint64(n) {
		err = fmt.Errorf("busy with %d datagrams, want %d", l.busy.Count, n)
	}
	return l, err
}

// busy runs load while the tool is attached.
func busy(x *trial.Trial, n int, flags ...string) (l loaded, err error) {
	begun := time.Now()
	rows, err := x.Rows(func() error { l, err = load(x.World, n); return err }, flags...)
	l.whole, l.rows = time.Since(begun), rows
	return l, err
}

// find is the row of a softirq on a processor.
func find(x *trial.Trial, rows []*row.Row, softirq, metric string, cpu int) *row.Row {
	for _, r := range rows {
		if r.Get("softirq").S == softirq && int(r.Get("cpu").N) == cpu && (metric == "" || r.Get("metric").S == metric) {
			return r
		}
	}
	x.Errorf("no row of %s %s on processor %d in %d rows", softirq, metric, cpu, len(rows))
	return nil
}

// times: the time of a softirq is at least its known work and at most the time
// of the run. --net leaves out other softirqs.
func times(x *trial.Trial) error {
	const n = 101
	l, err := busy(x, n, "--by=softirq,cpu", "--net")
	if err != nil {
		return err
	}
	for _, r := range l.rows {
		if name := r.Get("softirq").S; name != "net_rx" && name != "net_tx" {
			x.Errorf("a row of %s with --net", name)
		}
	}
	r := find(x, l.rows, "net_rx", "", l.cpu)
	if r == nil {
		return nil
	}
	b := l.busy
	total, longest, count := time.Duration(r.Get("total_us").N), time.Duration(r.Get("max_us").N), r.Get("count").N
	if total < b.Total || total > l.whole {
		x.Errorf("net_rx took %v in all, want %v, no more than %v", total, b.Total, l.whole)
	}
	if longest < b.Max || longest > total {
		x.Errorf("net_rx took %v at the most, want %v or more", longest, b.Max)
	}
	if avg := time.Duration(r.Get("avg_us").N); avg != total/time.Duration(count) || count < n {
		x.Errorf("%d of net_rx took %v each, want %v", count, avg, total/time.Duration(count))
	}
	return nil
}

// clocks are the softirqs that the clock's interrupts raise.
var clocks = []string{"timer", "sched", "hrtimer", "rcu"}

// ran is how often softirqs or interrupts ran on a processor between two tables.
func ran(from, to lab.Interrupts, cpu int, which func(line string) bool) (n uint64) {
	for line, counts := range to.Count {
		if which(line) {
			n += counts[cpu] - from.Count[line][cpu]
		}
	}
	return n
}

func isClock(line string) bool { return slices.Contains(clocks, strings.ToLower(line)) }

// isDevice reports whether an interrupt belongs to a device. LOC, RES and
// others do not.
func isDevice(line string) bool { return strings.Trim(line, "0123456789") == "" }

// ticks is how many of the clock's softirqs are enough. The clock runs
// independently of the datagrams, so it does not always interrupt the second half
// of their work.
const ticks = 100

// waits: the clock's softirqs were raised while the processor ran another
// softirq, so they had to wait for it. The softirqs of the datagrams did not
// wait.
func waits(x *trial.Trial) error {
	if err := x.Attach("--by=softirq,cpu", "--raise"); err != nil {
		return err
	}
	before, err := softirqs()
	if err != nil {
		return err
	}
	devices, err := lab.ReadInterrupts(lab.AllInterrupts)
	if err != nil {
		return err
	}
	var l loaded
	for clocked := uint64(0); clocked < ticks; {
		more, err := load(x.World, 211)
		if err != nil {
			return err
		}
		if b := more.busy; l.busy.Count == 0 {
			l = more
		} else {
			l.sent += more.sent
			l.busy = lab.BusyTime{Count: l.busy.Count + b.Count, Total: l.busy.Total + b.Total, Max: max(l.busy.Max, b.Max), Min: min(l.busy.Min, b.Min)}
		}
		now, err := softirqs()
		if err != nil {
			return err
		}
		clocked = ran(before, now, l.cpu, isClock)
	}
	after, err := lab.ReadInterrupts(lab.AllInterrupts)
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	cpu, least := l.cpu, l.busy.Min/2
	var longest time.Duration
	for _, r := range rows {
		if r.Get("metric").S == "wait" && int(r.Get("cpu").N) == cpu && slices.Contains(clocks, r.Get("softirq").S) {
			longest = max(longest, time.Duration(r.Get("max_us").N))
		}
	}
	if longest < least {
		x.Errorf("the clock's softirqs waited %v at the most, want %v or more: net_rx was busy for %v each time", longest, least, l.busy.Min)
	}
	run, wait := find(x, rows, "net_rx", "run", cpu), find(x, rows, "net_rx", "wait", cpu)
	if run == nil || wait == nil {
		return nil
	}
	runs, n := run.Get("count").N, wait.Get("count").N
	if n > runs*11/10 || n < runs*9/10 || runs < l.busy.Count {
		x.Errorf("%d of net_rx ran, %d of them had waited, want %d or more", runs, n, l.busy.Count)
		return nil
	}
	// While a datagram is being sent, its softirq either waits or runs. Softirqs for
	// other packets may be raised while it runs, or at another time.
	others := time.Duration(runs - l.busy.Count + ran(devices, after, cpu, isDevice))
	each := max(l.busy.Max, time.Duration(wait.Get("max_us").N))
	if total, most := time.Duration(wait.Get("total_us").N), l.sent-l.busy.Total+others*each; total > most {
		x.Errorf("net_rx waited %v, want no more than %v: sending took %v, of which it was busy for %v", total, most, l.sent, l.busy.Total)
	}
	return nil
}

// network: --net shows only softirqs of the network, with all other flags.
func network(x *trial.Trial) error {
	for _, flag := range []string{"--counts", "--raise", "--dist"} {
		l, err := busy(x, 101, "--by=softirq,cpu", "--net", flag)
		if err != nil {
			return err
		}
		for _, r := range l.rows {
			if name := r.Get("softirq").S; name != "net_rx" && name != "net_tx" {
				x.Errorf("a row of %s with --net %s", name, flag)
			}
		}
		find(x, l.rows, "net_rx", "", l.cpu)
	}
	return nil
}

// dist: the histogram of a softirq that is busy for known times.
func dist(x *trial.Trial) error {
	const n = 101
	l, err := busy(x, n, "--by=softirq,cpu", "--dist", "--net")
	if err != nil {
		return err
	}
	r := find(x, l.rows, "net_rx", "", l.cpu)
	if r == nil {
		return nil
	}
	b := l.busy
	h, ok := r.Get("time_ns").Ref.(*kern.Hist)
	if !ok {
		return fmt.Errorf("no histogram in %s", trial.Dump(r))
	}
	if h.Count < n || h.Sum < uint64(b.Total) || h.Max < uint64(b.Max) {
		x.Errorf("%d took %v, %v at the most; want %d, %v, %v or more", h.Count, time.Duration(h.Sum), time.Duration(h.Max), n, b.Total, b.Max)
	}
	slow := uint64(0)
	for _, bk := range h.Buckets() {
		if bk.Hi > uint64(b.Min) {
			slow += bk.Count
		}
	}
	if slow < n {
		x.Errorf("%d are in buckets of %v and more, want %d: %v", slow, b.Min, n, h.Buckets())
	}
	return nil
}

// intervals: each output covers its own interval and has a row for each
// softirq. Counts add up, and a maximum is that of its interval.
func intervals(x *trial.Trial) error {
	before, err := softirqs()
	if err != nil {
		return err
	}
	l, err := busy(x, 307, "--by=softirq", "--interval=100ms")
	if err != nil {
		return err
	}
	b := l.busy
	after, err := softirqs()
	if err != nil {
		return err
	}
	var most, count uint64
	for cpu, n := range after.Count["NET_RX"] {
		most += n - before.Count["NET_RX"][cpu]
	}
	var total, longest time.Duration
	seen := map[string]bool{}
	for _, r := range l.rows {
		name := r.Get("softirq").S
		if at := fmt.Sprint(r.Get("time").N, name); seen[at] {
			x.Errorf("two rows of %s in one output", name)
		} else {
			seen[at] = true
		}
		if name != "net_rx" {
			continue
		}
		t, m := time.Duration(r.Get("total_us").N), time.Duration(r.Get("max_us").N)
		if m > t {
			x.Errorf("an interval of %v in all has a maximum of %v", t, m)
		}
		count += r.Get("count").N
		total += t
		longest = max(longest, m)
	}
	if count < b.Count || count > most || total < b.Total || longest < b.Max {
		x.Errorf("%d took %v, %v at the most; want %d to %d, %v, %v or more", count, total, longest, b.Count, most, b.Total, b.Max)
	}
	return nil
}
