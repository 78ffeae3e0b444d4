// SPDX-License-Identifier: Apache-2.0

package nettxlat

import (
	"errors"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "tap", Run: tap},
}

// ends is the device of a row and how its packets ended.
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

// counts compares the packets of a device by their end.
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

// unsupported turns an error about a missing feature into a skip.
func unsupported(err error) error {
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	return err
}

// tap: the device keeps packets until this process reads them.
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
