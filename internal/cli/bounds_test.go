// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

// TestBounds: times of day are of the recording's last day, or of the day before it. An
// end of the range after that of the recording does not make it one of yesterday.
func TestBounds(t *testing.T) {
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.Local) }
	for _, c := range []struct {
		since, until string
		from, to     time.Time
		refused      bool
	}{
		{since: "14:00", until: "14:10", from: at(16, 14, 0), to: at(16, 14, 10)},
		{since: "14:00", until: "15:00", from: at(16, 14, 0), to: at(16, 15, 0)},
		{since: "23:50", until: "00:10", from: at(15, 23, 50), to: at(16, 0, 10)},
		{since: "22:00", until: "23:00", from: at(15, 22, 0), to: at(15, 23, 0)},
		{until: "23:00", to: at(15, 23, 0)},
		{since: "2026-11-13T08:00", until: "14:10", from: at(13, 8, 0), to: at(16, 14, 10)},
		{since: "14:10", until: "14:00", refused: true},
		{since: "2026-11-16T14:10", until: "2026-11-15T14:20", refused: true},
	} {
		f := fromFlags{since: c.since, until: c.until}
		from, to, err := f.bounds(at(16, 14, 30))
		if (err != nil) != c.refused || !c.refused && (!from.Equal(c.from) || !to.Equal(c.to)) {
			t.Errorf("--since %q --until %q: %v to %v (%v), want %v to %v", c.since, c.until, from, to, err, c.from, c.to)
		}
	}
}
