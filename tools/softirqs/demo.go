// SPDX-License-Identifier: Apache-2.0

package softirqs

import (
	"fmt"
	"strings"

	"seine/internal/lab"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "counts", Run: counts("--by=softirq,cpu", "--counts")},
	{Name: "agrees", Run: counts("--by=softirq,cpu")},
}

// counts: for each softirq on each processor, the tool's count lies between two
// counts of the kernel: that of the time in which the tool was surely attached,
// and that of the time in which it may have been.
func counts(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		return lab.Undisturbed(func() ([]error, error) { return round(x, flags) })
	}
}

// round is one round of counts. It returns the differences of the tool and the
// kernel.
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
