// SPDX-License-Identifier: Apache-2.0

package ieee80211scan

import (
	"fmt"
	"strconv"
	"strings"

	"seine/internal/kern"
	"seine/internal/row"
)

// Kinds of rows: enum what of ieee80211scan.bpf.c.
const (
	start what = iota
	channel
	found
	end
)

// has lists the columns that only some kinds of rows have.
var has = map[string][]what{
	"duration_ms": {channel, end},
	"freq_mhz":    {channel, found}, "band": {channel, found},
	"beacons": {channel, end}, "networks": {channel, end},
	"signal_dbm": {found}, "bssid": {found}, "ssid": {found},
	"result": {end}, "plan": {start}, "asked": {start},
}

// each leaves out the columns that a row does not have and makes the texts of
// the others.
func each(e *event, r *row.Row) {
	for id, kinds := range has {
		keep := false
		for _, k := range kinds {
			keep = keep || k == e.What
		}
		if !keep {
			*r.Get(id) = row.Cell{}
		}
	}
	if e.Signal == 0 {
		*r.Get("signal_dbm") = row.Cell{}
	}
	if e.What == start {
		r.Get("plan").SetText(e.Plan.list(e.Channels))
	}
	if e.What == start && e.SSIDs > 0 {
		r.Get("asked").SetText(e.Asked.list(e.SSIDs))
	}
	if e.What == end {
		r.Get("result").SetText(e.outcome())
	}
	r.Get("text").SetText(e.words())
}

func (e *event) outcome() string {
	switch {
	case e.Ret < 0:
		return kern.ErrnoName(int(-e.Ret))
	case e.Aborted != 0:
		return "aborted"
	}
	return "done"
}

// words is the row as a sentence, after its time.
func (e *event) words() string {
	dev := cell(&e.Dev)
	if dev == "" {
		dev = cell(&e.Phy)
	}
	place := fmt.Sprintf("%s %s MHz", e.Band, mhz(e.KHz))
	switch e.What {
	case start:
		return dev + ": " + e.began()
	case channel:
		return fmt.Sprintf("%s: scanning channel %s: %s, %.0f ms", dev, place, count(e.Beacons, "beacon"), ms(e.Duration))
	case found:
		s := fmt.Sprintf("%s: found %s %q on %s", dev, e.BSSID, e.SSID.name(), place)
		if e.Signal != 0 {
			s += fmt.Sprintf(", %d dBm", e.Signal/100)
		}
		return s
	}
	s := fmt.Sprintf("%s: scan completed: %.0f ms", dev, ms(e.Duration))
	switch o := e.outcome(); {
	case e.Ret < 0:
		return fmt.Sprintf("%s: scan refused: %s", dev, o)
	case o == "aborted":
		s = fmt.Sprintf("%s: scan aborted after %.0f ms", dev, ms(e.Duration))
	}
	return s + fmt.Sprintf(", %s in %s", count(e.Networks, "network"), count(e.Beacons, "beacon"))
}

func (e *event) began() string {
	s := "scan started"
	if e.PID != 0 {
		s += fmt.Sprintf(" by %s (PID %d)", cell(&e.Comm), e.PID)
	}
	s += fmt.Sprintf(": %s, %s, %s", e.SSIDs, e.Plan.bands(e.Channels), e.Software)
	if e.SSIDs > 0 {
		s += ", SSID " + e.Asked.list(e.SSIDs)
	}
	if e.Flags != 0 {
		s += ", " + e.Flags.String()
	}
	return s
}

func count(n uint32, of string) string {
	if n != 1 {
		of += "s"
	}
	return fmt.Sprintf("%d %s", n, of)
}

func ms(n kern.Nanos) float64 { return float64(n) / 1e6 }

// mhz is 2412, or 902.5 if the frequency is not a whole number.
func mhz(khz uint32) string { return strconv.FormatFloat(float64(khz)/1000, 'f', -1, 64) }

// cell is the text of a value.
func cell(v row.Valuer) string {
	var c row.Cell
	v.Cell(&c)
	return c.S
}

// what is the kind of a row.
type what uint32

func (what) Kind() row.Kind { return row.Text }

func (w *what) Cell(c *row.Cell) {
	c.SetText([...]string{start: "start", channel: "channel", found: "found", end: "end"}[min(*w, end)])
}

// flags is NL80211_SCAN_FLAG_*.
type flags uint32

var flagNames = []string{
	"low-priority", "flush", "ap", "random-addr", "fils-max-channel-time", "accept-bcast-probe-resp",
	"oce-probe-req-high-tx-rate", "oce-probe-req-deferral-suppression", "low-span", "low-power", "high-accuracy",
	"random-sn", "min-preq-content", "freq-khz", "colocated-6ghz",
}

func (f flags) String() string {
	var names []string
	for i, name := range flagNames {
		if f>>i&1 == 1 {
			names = append(names, name)
		}
	}
	if rest := f >> len(flagNames) << len(flagNames); rest != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(rest)))
	}
	return strings.Join(names, "+")
}

func (flags) Kind() row.Kind { return row.Text }

func (f *flags) Cell(c *row.Cell) {
	*c = row.Cell{}
	if *f != 0 {
		c.SetText(f.String())
	}
}

// band is enum nl80211_band.
type band uint32

var bandNames = []string{"2.4GHz", "5GHz", "60GHz", "6GHz", "S1G", "LC"}

func (b band) String() string {
	if int(b) < len(bandNames) {
		return bandNames[b]
	}
	return strconv.Itoa(int(b))
}

func (band) Kind() row.Kind { return row.Text }

func (b *band) Cell(c *row.Cell) { c.SetText(b.String()) }

// bandOf is the band of a frequency in kHz, for the summary of a request.
func bandOf(khz uint32) band {
	switch {
	case khz < 2_000_000:
		return 4
	case khz < 3_000_000:
		return 0
	case khz < 5_925_000:
		return 1
	case khz < 10_000_000:
		return 3
	}
	return 2
}

// software says who steps through the channels.
type software uint8

func (s software) String() string {
	if s == 0 {
		return "firmware"
	}
	return "software"
}

func (software) Kind() row.Kind { return row.Text }

func (s *software) Cell(c *row.Cell) { c.SetText(s.String()) }

// mac is the address of a station.
type mac [6]byte

func (m mac) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func (mac) Kind() row.Kind { return row.Text }

func (m *mac) Cell(c *row.Cell) { c.SetText(m.String()) }

// mode is the number of requested names. Without any, nothing is sent.
type mode uint32

func (m mode) String() string {
	if m == 0 {
		return "passive"
	}
	return "active"
}

func (mode) Kind() row.Kind { return row.Text }

func (m *mode) Cell(c *row.Cell) { c.SetText(m.String()) }

// ssid is struct scan_ssid: bytes of any kind, and how many.
type ssid struct {
	SSID [32]byte
	Len  uint8
}

func (s *ssid) name() string { return string(s.SSID[:min(s.Len, 32)]) }

func (ssid) Kind() row.Kind { return row.Text }

func (s *ssid) Cell(c *row.Cell) { c.SetText(s.name()) }

// asked is the first names of a request.
type asked [4]ssid

// list quotes them: a name may hold anything.
func (a *asked) list(n mode) string {
	var names []string
	for i := range min(int(n), len(a)) {
		names = append(names, strconv.Quote(a[i].name()))
	}
	if int(n) > len(a) {
		names = append(names, "…")
	}
	return strings.Join(names, ",")
}

func (asked) Kind() row.Kind { return row.Text }

func (*asked) Cell(c *row.Cell) { *c = row.Cell{} }

// plan is the frequencies of a request, in kHz.
type plan [160]uint32

func (p *plan) list(n uint32) string {
	var out []string
	for i := range min(int(n), len(p)) {
		out = append(out, mhz(p[i]))
	}
	if int(n) > len(p) {
		out = append(out, "…")
	}
	return strings.Join(out, ",")
}

// bands counts them: "11 channels of 2.4GHz, 25 of 5GHz".
func (p *plan) bands(n uint32) string {
	var of [6]uint32
	for i := range min(int(n), len(p)) {
		of[bandOf(p[i])]++
	}
	var out []string
	for b, k := range of {
		if k > 0 {
			out = append(out, fmt.Sprintf("%d of %s", k, band(b)))
		}
	}
	return count(n, "channel") + " (" + strings.Join(out, ", ") + ")"
}

func (plan) Kind() row.Kind { return row.Text }

func (*plan) Cell(c *row.Cell) { *c = row.Cell{} }

// result and words are texts that are made of other columns.
type result int32

func (result) Kind() row.Kind { return row.Text }

func (*result) Cell(c *row.Cell) { *c = row.Cell{} }

type words uint32

func (words) Kind() row.Kind { return row.Text }

func (*words) Cell(c *row.Cell) { *c = row.Cell{} }
