// SPDX-License-Identifier: Apache-2.0

package ieee80211scan

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// network is the name of the cases' network, with bytes that need quoting.
const network = "seine \"lab\""

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		if err := needHwsim(); err != nil {
			return err
		}
		ap, err := w.NewRadio("", "seine-ap", 1)
		if err != nil {
			return err
		}
		if err := w.Beacon(ap, 2437, "seine"); err != nil {
			return err
		}
		r, err := w.NewRadio("", "seine-sta", 1)
		if err != nil {
			return err
		}
		s, err := lab.StartScan(w, r, "supplicant", lab.WifiScan{
			SSIDs: []string{"seine"}, MHz: []uint32{2412, 2437, 2462, 5180}, Flags: unix.NL80211_SCAN_FLAG_FLUSH,
		})
		if err != nil {
			return err
		}
		_, err = s.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "software", Run: withRadios(oneScan)},
}

// cannot is the reason why this kernel has nothing to see, or nil. It looks up
// the tracepoint independently of the tool's error, err.
func cannot() (why, err error) {
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	why = probe.HasModule(module)(k)
	if there := probe.HasTracepoint("rdev_scan", 2)(k) == nil; there != (why == nil) {
		return why, fmt.Errorf("tracepoint rdev_scan is there: %v, but the tool says: %v", there, why)
	}
	return why, nil
}

// needHwsim is the error of a machine without simulated radios.
func needHwsim() error {
	switch host.Module(hwsim) {
	case host.ModuleLoaded, host.ModuleBuiltin:
		return nil
	}
	return fmt.Errorf("%w: no simulated radios: modprobe %s", probe.ErrNotSupported, hwsim)
}

const hwsim = "mac80211_hwsim"

// withRadios skips a case if the kernel cannot run it; the case "without" then
// checks the message. A guest of the matrix must have simulated radios.
func withRadios(run func(*trial.Trial) error) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		none := needHwsim()
		if guest := os.Getenv("SEINE_VM"); none != nil && guest != "" {
			return fmt.Errorf("guest %s: %w", guest, none)
		}
		switch why, err := cannot(); {
		case err != nil:
			return err
		case why != nil:
			return trial.Skip("%s", probe.Reason(why))
		case none != nil:
			return trial.Skip("%s", probe.Reason(none))
		}
		return run(x)
	}
}

// scanRun is a scan, the report of its process, and its rows.
type scanRun struct {
	*lab.Scanner
	lab.WifiScanned
	rows []*row.Row
}

// run makes concurrent scans, waits for them, and assigns the rows to them.
func run(x *trial.Trial, scanners []*lab.Scanner, during func() error) ([]scanRun, error) {
	runs := make([]scanRun, len(scanners))
	for _, do := range []func(*lab.Scanner) error{(*lab.Scanner).Begin, (*lab.Scanner).Begun} {
		for _, s := range scanners {
			if err := do(s); err != nil {
				return nil, err
			}
		}
	}
	if during != nil {
		if err := during(); err != nil {
			return nil, err
		}
	}
	for i, s := range scanners {
		got, err := s.Over()
		if err != nil {
			return nil, err
		}
		runs[i] = scanRun{Scanner: s, WifiScanned: got}
	}
	return runs, deal(x, runs)
}

// deal ends the tool and assigns the rows to the scans.
func deal(x *trial.Trial, runs []scanRun) error {
	// The kernel reports the end to the process after the tool has seen it.
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	for _, r := range rows {
		i := slices.IndexFunc(runs, func(s scanRun) bool { return s.Radio.Dev == r.Get("dev").S })
		if i < 0 {
			x.Errorf("a row of nobody's: %s", trial.Dump(r))
			continue
		}
		runs[i].rows = append(runs[i].rows, r)
	}
	return nil
}

// scene is an access point on 2437 MHz and scanners on radios of their own.
func scene(x *trial.Trial, phy string, channels uint32, scans ...lab.WifiScan) (ap *lab.Radio, scanners []*lab.Scanner, err error) {
	if ap, err = x.World.NewRadio("", phy+"-ap", 1); err != nil {
		return nil, nil, err
	}
	if err = x.World.Beacon(ap, 2437, network); err != nil {
		return nil, nil, err
	}
	scanners, err = listeners(x, phy, channels, scans...)
	return ap, scanners, err
}

// listeners is scanners on radios of their own.
func listeners(x *trial.Trial, phy string, channels uint32, scans ...lab.WifiScan) (scanners []*lab.Scanner, err error) {
	for i, s := range scans {
		r, err := x.World.NewRadio("", fmt.Sprintf("%s-%d", phy, i), channels)
		if err != nil {
			return nil, err
		}
		p, err := lab.StartScan(x.World, r, fmt.Sprintf("scanner%d", i), s)
		if err != nil {
			return nil, err
		}
		scanners = append(scanners, p)
	}
	return scanners, nil
}

// scanned is a scene after its scans, with the tool attached.
func scanned(x *trial.Trial, phy string, channels uint32, scans ...lab.WifiScan) (ap *lab.Radio, runs []scanRun, err error) {
	ap, scanners, err := scene(x, phy, channels, scans...)
	if err != nil {
		return nil, nil, err
	}
	if err := x.Attach(); err != nil {
		return nil, nil, err
	}
	runs, err = run(x, scanners, nil)
	return ap, runs, err
}

// bands are those of the frequencies in use here.
var bands = map[uint32]string{2412: "2.4GHz", 2437: "2.4GHz", 2462: "2.4GHz", 5180: "5GHz", 5200: "5GHz", 5745: "5GHz"}

// check compares the rows of a completed scan with its request.
func (s *scanRun) check(x *trial.Trial, ap *lab.Radio, by string) {
	want := []string{"start"}
	for _, f := range s.Scan.MHz {
		if f == 2437 {
			want = append(want, "found")
		}
		if by == "software" {
			want = append(want, "channel")
		}
	}
	want = append(want, "end")
	var got []string
	for _, r := range s.rows {
		got = append(got, r.Get("event").S)
	}
	if !slices.Equal(got, want) {
		x.Errorf("%s: rows are %v, want %v", s.Radio.Dev, got, want)
		return
	}
	var plan []string
	for _, f := range s.Scan.MHz {
		plan = append(plan, fmt.Sprint(f))
	}
	first, last := s.rows[0], s.rows[len(s.rows)-1]
	for _, r := range s.rows {
		x.Want(r, "pid", s.PID)
		x.Want(r, "comm", s.Comm)
		x.Want(r, "netns", s.Netns)
		x.Want(r, "phy", s.Radio.Phy)
		x.Want(r, "by", by)
		x.Want(r, "channels", len(s.Scan.MHz))
		x.Want(r, "scan", trial.Value(first.Get("scan")))
	}
	x.Want(first, "plan", strings.Join(plan, ","))
	steps, beacons, stay := s.Scan.MHz, uint64(0), uint64(0)
	for _, r := range s.rows {
		switch r.Get("event").S {
		case "found":
			x.Want(r, "ssid", network)
			x.Want(r, "bssid", mac(ap.MAC))
			x.Want(r, "freq_mhz", 2437_000)
			x.Want(r, "band", "2.4GHz")
		case "channel":
			x.Want(r, "freq_mhz", steps[0]*1000)
			x.Want(r, "band", bands[steps[0]])
			n := r.Get("beacons").N
			if heard := steps[0] == 2437; heard != (n > 0) {
				x.Errorf("%d beacons on %d MHz, where there is a network: %v", n, steps[0], heard)
			}
			beacons += n
			stay += r.Get("duration_ms").N
			steps = steps[1:]
		}
	}
	x.Want(last, "result", "done")
	found := 0
	if slices.Contains(s.Scan.MHz, 2437) {
		found = 1
	}
	x.Want(last, "networks", found)
	// Beacons that were heard while the radio left their channel count for
	// the scan only.
	took := last.Get("duration_ms").N
	left := 1 + (took-min(stay, took))/uint64(lab.BeaconInterval)
	if n := last.Get("beacons").N; by == "software" && (n < beacons || n > beacons+left) || found > 0 && n == 0 {
		x.Errorf("%d beacons in all, %d on the channels", n, beacons)
	}
	// The kernel counts ticks, and an emulated machine's ticks may be late by more than one. A scan that is shorter than
	// the rule is right if the stopwatch of its process is as short.
	least := min(s.least(), uint64(s.NS)*3/4)
	if took >= uint64(s.NS) || took < least || by == "software" && (stay > took || stay < least) {
		x.Errorf("the scan took %d ns, of which the radio was on channels for %d; the stopwatch of its process says %d, the kernel's rule %d at least",
			took, stay, s.NS, s.least())
	}
}

// least is the least time that the kernel stays on the channels, in nanoseconds: a ninth
// of a second on each (IEEE80211_PASSIVE_CHANNEL_TIME; hwsim's firmware stays longer), or
// two 33rds of a second if it sends probe requests (IEEE80211_PROBE_DELAY,
// IEEE80211_CHANNEL_TIME). Each is rounded down to whole ticks of at most 10 ms, and the
// first tick is only a part of one.
func (s *scanRun) least() uint64 {
	const tick = 12 * time.Millisecond // and what is rounded
	stay := time.Second/9 - tick
	if s.Scan.SSIDs != nil {
		stay = 2 * (time.Second/33 - tick)
	}
	return uint64(len(s.Scan.MHz)) * uint64(stay)
}

// oneScan: an active scan with flags finds a network.
func oneScan(x *trial.Trial) error {
	ap, runs, err := scanned(x, "one", 1, lab.WifiScan{
		SSIDs: []string{network, ""}, MHz: []uint32{2412, 2437, 2462, 5180},
		Flags: unix.NL80211_SCAN_FLAG_FLUSH | unix.NL80211_SCAN_FLAG_LOW_PRIORITY,
	})
	if err != nil {
		return err
	}
	if runs[0].check(x, ap, "software"); len(runs[0].rows) == 0 {
		return nil
	}
	for _, r := range runs[0].rows {
		x.Want(r, "mode", "active")
		x.Want(r, "flags", "low-priority+flush")
	}
	x.Want(runs[0].rows[0], "asked", `"seine \"lab\"",""`)
	return nil
}

// ended checks the rows of a scan that did not complete.
func (s *scanRun) ended(x *trial.Trial, result string) {
	if len(s.rows) < 2 {
		x.Errorf("%d rows, want a start and an end", len(s.rows))
		return
	}
	first, last := s.rows[0], s.rows[len(s.rows)-1]
	x.Want(first, "event", "start")
	x.Want(first, "pid", s.PID)
	x.Want(last, "event", "end")
	x.Want(last, "result", result)
	if n := len(s.rows) - 2; n >= len(s.Scan.MHz) {
		x.Errorf("%d channels before it ended, of %d", n, len(s.Scan.MHz))
	}
}
