// SPDX-License-Identifier: Apache-2.0

package softirqs

import (
	"fmt"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		p, err := lab.StartPinned(w, "sender", 10007)
		if err != nil {
			return err
		}
		_, err = p.Run()
		return err
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "counts", Run: counts("--by=softirq,cpu", "--counts")},
	{Name: "agrees", Run: counts("--by=softirq,cpu")},
	{Name: "times", Run: times},
	{Name: "waits", Run: waits},
	{Name: "dist", Run: dist},
	{Name: "intervals", Run: intervals},
	{Name: "net", Run: network},
}

// softirqs reads the kernel's own account.
func softirqs() (lab.Interrupts, error) { return lab.ReadInterrupts("/proc/softirqs") }

// counts: of each softirq on each processor as many as the kernel itself counts
// while the tool is attached for sure, and no more than while it may be.
func counts(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		return lab.Undisturbed(func() ([]error, error) { return round(x, flags) })
	}
}

// round is one of counts, and returns in what the tool and the kernel differ.
func round(x *trial.Trial, flags []string) (differ []error, err error) {
	const n = 1009
	p, err := lab.StartPinned(x.World, "sender", n)
	if err != nil {
		return nil, err
	}
	rows, at, err := x.Counted("/proc/softirqs", func() error { _, err := p.Run(); return err }, flags...)
	if err != nil {
		return nil, err
	}
	seen := map[string]map[int]uint64{}
	for _, r := range rows {
		name := strings.ToUpper(r.Get("softirq").S)
		if seen[name] == nil {
			seen[name] = map[int]uint64{}
		}
		seen[name][int(r.Get("cpu").N)] += r.Get("count").N
	}
	for name, cpus := range at[3].Count {
		for cpu := range cpus {
			if err := at.Between(seen[name][cpu], name, cpu); err != nil {
				differ = append(differ, err)
			}
		}
	}
	if got := seen["NET_RX"][p.CPU]; got < n {
		differ = append(differ, fmt.Errorf("%d of NET_RX on processor %d, want %d or more", got, p.CPU, n))
	}
	return differ, nil
}

// busy sends n datagrams which the receiver's softirq is busy with, and says for
// how long: on which processor, as the program that kept it busy measured, and as
// the sender did.
func busy(x *trial.Trial, n int, flags ...string) (cpu int, b lab.BusyTime, wall time.Duration, rows []*row.Row, err error) {
	p, err := lab.StartPinned(x.World, "sender", n)
	if err != nil {
		return 0, b, 0, nil, err
	}
	bz, err := lab.StartBusy(p.Port)
	if err != nil {
		return 0, b, 0, nil, err
	}
	defer bz.Close()
	rows, err = x.Rows(func() error { wall, err = p.Run(); return err }, flags...)
	if err != nil {
		return 0, b, 0, nil, err
	}
	if b, err = bz.Took(); err == nil && b.Count != uint64(n) {
		err = fmt.Errorf("busy with %d datagrams, want %d", b.Count, n)
	}
	return p.CPU, b, wall, rows, err
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

// times: a softirq takes as long as what it is busy with, and no longer than the
// whole did; what is not the network's is left out.
func times(x *trial.Trial) error {
	const n = 101
	cpu, b, _, rows, err := busy(x, n, "--by=softirq,cpu", "--net")
	if err != nil {
		return err
	}
	for _, r := range rows {
		if name := r.Get("softirq").S; name != "net_rx" && name != "net_tx" {
			x.Errorf("a row of %s with --net", name)
		}
	}
	r := find(x, rows, "net_rx", "", cpu)
	if r == nil {
		return nil
	}
	total, longest, count := time.Duration(r.Get("total_us").N), time.Duration(r.Get("max_us").N), r.Get("count").N
	if total < b.Total || total > x.Report.Duration {
		x.Errorf("net_rx took %v in all, want %v, no more than %v", total, b.Total, x.Report.Duration)
	}
	if longest < b.Max || longest > total {
		x.Errorf("net_rx took %v at the most, want %v or more", longest, b.Max)
	}
	if avg := time.Duration(r.Get("avg_us").N); avg != total/time.Duration(count) || count < n {
		x.Errorf("%d of net_rx took %v each, want %v", count, avg, total/time.Duration(count))
	}
	return nil
}

// waits: the clock's softirqs, raised while the processor was busy with another
// one, had to wait for it; those of the datagrams did not.
func waits(x *trial.Trial) error {
	cpu, b, _, rows, err := busy(x, 211, "--by=softirq,cpu", "--raise")
	if err != nil {
		return err
	}
	each := b.Total / time.Duration(b.Count)
	var longest time.Duration
	for _, r := range rows {
		if r.Get("metric").S == "wait" && int(r.Get("cpu").N) == cpu && strings.Contains("timer sched rcu hrtimer", r.Get("softirq").S) {
			longest = max(longest, time.Duration(r.Get("max_us").N))
		}
	}
	if longest < each/2 || longest > 2*x.Report.Duration {
		x.Errorf("the clock's softirqs waited %v at the most, want %v or more: net_rx was busy for %v each time", longest, each/2, each)
	}
	run, wait := find(x, rows, "net_rx", "run", cpu), find(x, rows, "net_rx", "wait", cpu)
	if run == nil || wait == nil {
		return nil
	}
	if runs, n := run.Get("count").N, wait.Get("count").N; n > runs*11/10 || n < runs*9/10 {
		x.Errorf("%d of net_rx ran, %d of them had waited", runs, n)
	}
	if avg := time.Duration(wait.Get("avg_us").N); avg > each/2 {
		x.Errorf("net_rx waited %v on average, and ran at once", avg)
	}
	return nil
}

// network: with --net there is nothing of what is not the network's, whatever is
// asked of it.
func network(x *trial.Trial) error {
	for _, flag := range []string{"--counts", "--raise", "--dist"} {
		cpu, _, _, rows, err := busy(x, 101, "--by=softirq,cpu", "--net", flag)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if name := r.Get("softirq").S; name != "net_rx" && name != "net_tx" {
				x.Errorf("a row of %s with --net %s", name, flag)
			}
		}
		find(x, rows, "net_rx", "", cpu)
	}
	return nil
}

// dist: the histogram of what is busy for known times.
func dist(x *trial.Trial) error {
	const n = 101
	cpu, b, _, rows, err := busy(x, n, "--by=softirq,cpu", "--dist", "--net")
	if err != nil {
		return err
	}
	r := find(x, rows, "net_rx", "", cpu)
	if r == nil {
		return nil
	}
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

// intervals: outputs cover their own time and add up, a row for each softirq; a
// maximum is that of its interval.
func intervals(x *trial.Trial) error {
	before, err := softirqs()
	if err != nil {
		return err
	}
	_, b, _, rows, err := busy(x, 307, "--by=softirq", "--interval=100ms")
	if err != nil {
		return err
	}
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
	for _, r := range rows {
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
