// SPDX-License-Identifier: Apache-2.0

package hardirqs

import (
	"fmt"
	"time"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "net", Run: net},
		{Name: "dist", Run: dist},
	}
}

// net: --net does not show interrupts of a disk or a serial line.
func net(x *trial.Trial) error {
	if source() == "" {
		return trial.Skip("no disk to read from, and no guest's console")
	}
	for _, flags := range [][]string{{"--net"}, nil} {
		rows, err := x.Rows(func() error { return load(x.World, 101) }, flags...)
		if err != nil {
			return err
		}
		others := 0
		for _, r := range rows {
			if host.NetIRQ(uint32(r.Get("irq").N), r.Get("hardirq").S) == "" {
				others++
			}
		}
		if (others > 0) == (flags != nil) {
			x.Errorf("%d of %d rows are not of network devices, with the flags %v", others, len(rows), flags)
		}
	}
	return nil
}

// dist: the sum of a histogram is at most the time of the run.
func dist(x *trial.Trial) error {
	if source() == "" {
		return trial.Skip("no disk to read from, and no guest's console")
	}
	begun := time.Now()
	rows, err := x.Rows(func() error { return load(x.World, 499) }, "--dist", "--by=cpu")
	if err != nil {
		return err
	}
	whole := time.Since(begun)
	var n uint64
	for _, r := range rows {
		h, ok := r.Get("time_ns").Ref.(*kern.Hist)
		if !ok {
			return fmt.Errorf("no histogram in %s", trial.Dump(r))
		}
		n += h.Count
		if took := time.Duration(h.Sum); h.Min > h.Max || h.Max > h.Sum || took > whole || h.Sum < h.Min*h.Count || h.Sum > h.Max*h.Count {
			x.Errorf("%d took %v, %v to %v, in %v", h.Count, took, time.Duration(h.Min), time.Duration(h.Max), whole)
		}
		x.Want(r, "hardirq", "-")
	}
	if n < 100 {
		x.Errorf("%d interrupts in %d rows, want 100 or more", n, len(rows))
	}
	return nil
}
