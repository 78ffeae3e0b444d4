// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"time"

	"golang.org/x/sys/unix"
)

// Jiffy is the length of a jiffy on this kernel. The coarse clocks advance by
// jiffies.
func Jiffy() time.Duration {
	var res unix.Timespec
	if unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res) != nil || res.Nano() == 0 {
		return 4 * time.Millisecond
	}
	return time.Duration(res.Nano())
}
