// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// offset is wall-clock time minus monotonic time, in nanoseconds. synced is
// when it was read, by the wall clock.
var offset, synced atomic.Int64

func init() { SyncClock() }

// SyncClock reads the difference of the kernel's monotonic clock and the wall
// clock again, so that a step of the clock does not skew a long run.
func SyncClock() {
	best := int64(1 << 62)
	for range 3 { // the reading with the least time between its two halves
		a := monotonic()
		wall := time.Now().UnixNano()
		b := monotonic()
		if b-a < best {
			best = b - a
			offset.Store(wall - (a+b)/2)
			synced.Store(wall)
		}
	}
}

// stale is how long an offset is good for.
const stale = 50 * time.Millisecond

// Wall is the time of day of a kernel timestamp, for callers that do not call SyncClock now and
// then: it reads the offset again when the clock was set or the machine slept.
func Wall(m Mono) time.Time {
	if age := time.Duration(time.Now().UnixNano() - synced.Load()); age < 0 || age > stale {
		SyncClock()
	}
	return time.Unix(0, WallNanos(m))
}

func monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// MonoNow is the current time of the clock that bpf_ktime_get_ns reads.
func MonoNow() Mono { return Mono(monotonic()) }

// WallNanos turns a kernel timestamp into nanoseconds since the Unix epoch.
func WallNanos(m Mono) int64 { return int64(m) + offset.Load() }

// MonoAt turns a time of day into a kernel timestamp.
func MonoAt(t time.Time) Mono { return Mono(t.UnixNano() - offset.Load()) }
