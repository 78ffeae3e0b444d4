// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"seine/internal/row"
)

// clock writes moments as --time says. The form micro is the clock with
// microseconds, for rows that come faster than one a second.
type clock struct {
	form  string
	start int64
	zone  *time.Location

	second int64 // clock: the one that text shows
	text   []byte
}

var timeForms = []string{"clock", "micro", "iso", "rel", "unix", "none"}

func (k *clock) init(o Options) error {
	k.form, k.zone, k.start = o.Time, o.Zone, o.Start.UnixNano()
	if k.form == "" {
		k.form = "clock"
	}
	if k.zone == nil {
		k.zone = time.Local
	}
	return CheckTime(k.form)
}

// CheckTime says whether --time may be form; empty is the tool's own.
func CheckTime(form string) error {
	if form != "" && !slices.Contains(timeForms, form) {
		return fmt.Errorf("unknown form of time %q: one of %s", form, strings.Join(timeForms, ", "))
	}
	return nil
}

// head is the book's TIME(s) for seconds since the start, and TIME otherwise.
func (k *clock) head(head string) string {
	plain := strings.TrimSuffix(head, "(s)")
	if k.form == "rel" {
		return plain + "(s)"
	}
	return plain
}

func (k *clock) width() int {
	return map[string]int{"clock": 8, "micro": 15, "iso": 32, "rel": 9, "unix": 17}[k.form]
}

func (k *clock) append(b []byte, c *row.Cell) []byte {
	ns := int64(c.N)
	switch k.form {
	case "none":
		return b
	case "iso":
		return time.Unix(0, ns).In(k.zone).AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	case "rel":
		since := row.Cell{Kind: row.Int, N: uint64(ns - k.start)}
		return appendScaled(b, &since, 1e9, 3)
	case "unix":
		return appendScaled(b, c, 1e9, 6)
	}
	if sec := ns / 1e9; sec != k.second || k.text == nil {
		k.second = sec
		k.text = time.Unix(sec, 0).In(k.zone).AppendFormat(k.text[:0], time.TimeOnly)
	}
	b = append(b, k.text...)
	if k.form == "micro" {
		b = appendPadded(append(b, '.'), uint64(ns%1e9)/1e3, 6)
	}
	return b
}
