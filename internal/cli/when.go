// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"seine/internal/tool"
)

// parseWhen reads the time of --since or --until: "14:02", "2026-11-16T14:02:00Z", "10m ago".
// A time of day means its last occurrence before end, the end of the recording.
func parseWhen(s string, now, end time.Time) (time.Time, error) {
	if ago, ok := strings.CutSuffix(s, " ago"); ok {
		d, err := parseLong(strings.TrimSpace(ago))
		if err != nil {
			return time.Time{}, err
		}
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, form := range []string{"15:04:05", "15:04"} {
		t, err := time.Parse(form, s)
		if err != nil {
			continue
		}
		end = end.In(now.Location())
		day := func(back int) time.Time {
			return time.Date(end.Year(), end.Month(), end.Day()-back, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), end.Location())
		}
		if at := day(0); !at.After(end) {
			return at, nil
		}
		return day(1), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time: write 14:02, 2026-11-16T14:02:00Z or '10m ago'", s)
}

// parseLong is tool.ParseDuration with days: 7d.
func parseLong(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		d, err := tool.ParseDuration(days + "h")
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration: write 10m, 12h or 7d", s)
		}
		return 24 * d, nil
	}
	return tool.ParseDuration(s)
}

// longFlag is a duration that may be in days.
type longFlag struct{ d *time.Duration }

func (f *longFlag) Type() string { return "duration" }
func (f *longFlag) String() string {
	if f.d == nil || *f.d == 0 {
		return ""
	}
	return f.d.String()
}
func (f *longFlag) Set(s string) (err error) {
	if *f.d, err = parseLong(s); err == nil && *f.d == 0 {
		return fmt.Errorf("%q: must be more than 0", s)
	}
	return err
}
