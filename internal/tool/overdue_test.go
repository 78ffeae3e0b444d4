// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"testing"
	"time"

	"seine/internal/kern"
)

// TestOverdue: also on a machine that was started less than the time to wait ago, and
// of what has no beginning yet.
func TestOverdue(t *testing.T) {
	second := kern.Mono(time.Second)
	for _, c := range []struct {
		since, now kern.Mono
		want       bool
	}{
		{30 * second, 35 * second, false}, // the clock began 35 s ago
		{30 * second, 91 * second, true},
		{31 * second, 91 * second, false},
		{92 * second, 91 * second, false},
		{kern.Mono(kern.None), 91 * second, false},
	} {
		if got := overdue(c.since, c.now, time.Minute); got != c.want {
			t.Errorf("since %d, at %d: %v, want %v", c.since, c.now, got, c.want)
		}
	}
}
