// SPDX-License-Identifier: Apache-2.0

package ieee80211scan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "two-at-once", Run: withRadios(twoAtOnce)},
		{Name: "aborted", Run: withRadios(aborted)},
		{Name: "down", Run: withRadios(down)},
		{Name: "one-channel", Run: withRadios(oneChannel)},
		{Name: "few", Run: withRadios(few)},
		{Name: "firmware", Run: withRadios(firmware)},
		{Name: "hostapd", Run: withRadios(hostapd)},
		{Name: "refused", Run: withRadios(refused)},
		{Name: "filters", Run: withRadios(filters)},
		{Name: "without", Run: without},
	}
}

// without: the error names the module and the remedy.
func without(x *trial.Trial) error {
	why, err := cannot()
	if err != nil {
		return err
	}
	if why == nil {
		return trial.Skip("this kernel has %s", module)
	}
	err = x.Attach()
	if !errors.Is(err, probe.ErrNotSupported) {
		return fmt.Errorf("attached without %s, or for another reason: %v", module, err)
	}
	if reason := probe.Reason(why); !strings.Contains(err.Error(), reason) || !strings.Contains(reason, module) {
		x.Errorf("the error is %q, want %q in it", err, reason)
	}
	return nil
}

// twoAtOnce: two radios and two processes scan different channels; one hears
// the network.
func twoAtOnce(x *trial.Trial) error {
	ap, runs, err := scanned(x, "two", 1,
		lab.WifiScan{MHz: []uint32{2462, 2437, 5180, 5200, 5745, 2412}}, lab.WifiScan{MHz: []uint32{5745, 2412, 5180, 2462, 5200}})
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i].check(x, ap, "software")
		for _, r := range runs[i].rows {
			x.Want(r, "mode", "passive")
			x.Want(r, "asked", "-")
			x.Want(r, "flags", "-")
		}
	}
	a, b := runs[0].rows, runs[1].rows
	began := func(rows []*row.Row) uint64 { return rows[0].Get("time").N }
	ended := func(rows []*row.Row) uint64 { return rows[len(rows)-1].Get("time").N }
	if len(a) > 0 && len(b) > 0 && (began(b) > ended(a) || began(a) > ended(b)) {
		x.Errorf("the scans were not under way at once")
	}
	return nil
}

// far is a list of channels that takes a second and does not include the
// network's.
var far = []uint32{2412, 2462, 5180, 5200, 5745, 2417, 2422, 2427, 2432, 2442}

// aborted: the process aborts its own scan.
func aborted(x *trial.Trial) error {
	_, runs, err := scanned(x, "abort", 1, lab.WifiScan{MHz: far, Abort: true})
	if err != nil {
		return err
	}
	if !runs[0].Aborted {
		return fmt.Errorf("the kernel did not abort the scan")
	}
	runs[0].ended(x, "aborted")
	return nil
}

// down: the interface goes down during the scan.
func down(x *trial.Trial) error {
	_, scanners, err := scene(x, "down", 1, lab.WifiScan{MHz: far})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	runs, err := run(x, scanners, func() error { return x.World.Down(scanners[0].Radio) })
	if err != nil {
		return err
	}
	runs[0].ended(x, "aborted")
	return nil
}

// oneChannel: the radio is already on the only channel, so it is not tuned.
func oneChannel(x *trial.Trial) error {
	ap, runs, err := scanned(x, "here", 1, lab.WifiScan{MHz: []uint32{2412}})
	if err != nil {
		return err
	}
	runs[0].check(x, ap, "software")
	return nil
}

// few: the maps have few entries. Each of many scans in turn finds room.
func few(x *trial.Trial) error {
	ap, scanners, err := scene(x, "few", 1, slices.Repeat([]lab.WifiScan{{MHz: []uint32{2437}}}, 5)...)
	if err != nil {
		return err
	}
	flag, err := x.Few()
	if err != nil {
		return err
	}
	if err := x.Attach(flag); err != nil {
		return err
	}
	runs := make([]scanRun, len(scanners))
	for i, s := range scanners {
		if err := errors.Join(s.Begin(), s.Begun()); err != nil {
			return err
		}
		runs[i].Scanner = s
		if runs[i].WifiScanned, err = s.Over(); err != nil {
			return err
		}
	}
	if err := deal(x, runs); err != nil {
		return err
	}
	for i := range runs {
		runs[i].check(x, ap, "software")
	}
	x.NoneLost()
	return nil
}

// hostapd: a real access point, where there is one.
func hostapd(x *trial.Trial) error {
	ap, err := x.World.NewRadio("", "real-ap", 1)
	if err != nil {
		return err
	}
	stop, err := x.World.Hostapd(ap, 2437, network)
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	if err != nil {
		return err
	}
	defer stop()
	scanners, err := listeners(x, "real", 1, lab.WifiScan{SSIDs: []string{network}, MHz: []uint32{2412, 2437, 5180}})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	runs, err := run(x, scanners, nil)
	if err != nil {
		return err
	}
	runs[0].check(x, ap, "software")
	return nil
}

// firmware: a device that scans by itself shows its networks and its end only.
func firmware(x *trial.Trial) error {
	ap, runs, err := scanned(x, "fw", 2, lab.WifiScan{MHz: []uint32{2412, 2437, 5180}})
	if err != nil {
		return err
	}
	runs[0].check(x, ap, "firmware")
	return nil
}

// refused: a monitor interface does not scan.
func refused(x *trial.Trial) error {
	r, err := x.World.NewRadio("", "no", 1)
	if err != nil {
		return err
	}
	if err := x.World.Monitor(r); err != nil {
		return err
	}
	s, err := lab.StartScan(x.World, r, "scanner", lab.WifiScan{MHz: []uint32{2412}})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	runs, err := run(x, []*lab.Scanner{s}, nil)
	if err != nil {
		return err
	}
	if runs[0].Refused != unix.EOPNOTSUPP {
		return fmt.Errorf("the kernel says %v to the scan, want EOPNOTSUPP", runs[0].Refused)
	}
	runs[0].ended(x, "EOPNOTSUPP")
	if len(runs[0].rows) != 2 {
		x.Errorf("%d rows, want a start and an end", len(runs[0].rows))
	}
	return nil
}

// filters: by device and by process.
func filters(x *trial.Trial) error {
	for _, flag := range []string{"--dev", "--comm"} {
		_, scanners, err := scene(x, strings.Trim(flag, "-"), 1,
			lab.WifiScan{MHz: []uint32{2412, 5180}}, lab.WifiScan{MHz: []uint32{2462, 5200}})
		if err != nil {
			return err
		}
		want := scanners[1].Comm
		if flag == "--dev" {
			want = scanners[1].Radio.Dev
		}
		if err := x.Attach(flag + "=" + want); err != nil {
			return err
		}
		runs, err := run(x, scanners, nil)
		if err != nil {
			return err
		}
		if a, b := len(runs[0].rows), len(runs[1].rows); a != 0 || b != 4 {
			x.Errorf("%s %s: %d rows of the other scan and %d of the wanted one, want 0 and 4", flag, want, a, b)
		}
	}
	return nil
}
