// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// offset is wall-clock time less monotonic time, in nanoseconds.
var offset atomic.Int64

func init() { SyncClock() }

// SyncClock reads the distance between the kernel's monotonic clock and the
// wall clock anew, so that a step of the clock does not skew a long run.
func SyncClock() {
	best := int64(1 << 62)
	for range 3 { // the reading with the least time between its two halves
		a := monotonic()
		wall := time.Now().UnixNano()
		b := monotonic()
		if b-a < best {
			best = b - a
			offset.Store(wall - (a+b)/2)
		}
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// MonoNow is the present moment of the clock that bpf_ktime_get_ns reads.
func MonoNow() Mono { return Mono(monotonic()) }

// WallNanos turns a kernel moment into nanoseconds since the Unix epoch.
func WallNanos(m Mono) int64 { return int64(m) + offset.Load() }
