// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"testing"
	"time"

	"seine/internal/kern"
)

// TestLateConnections: turns that were counted before their connections came, because the end of
// these was still in the ring, are shown with them in the next output. What no connection follows
// is left out.
func TestLateConnections(t *testing.T) {
	d := newDirectory()
	counted := func(n int) map[uint64]*turns {
		c := &turns{}
		for range n {
			c.Turn.Add(100)
			c.First.Add(50)
		}
		return map[uint64]*turns{7: c}
	}
	ended := []event{{About: about{Service: 7, Turns: kern.Opt(5), TX: 10}}}
	shows := func(when string, got []service, want uint64) {
		t.Helper()
		var sum uint64
		for _, s := range got {
			sum += uint64(s.Turns)
		}
		if sum != want {
			t.Errorf("%s: %d turns, want %d", when, sum, want)
		}
	}
	shows("before their connections", d.rows(time.Second, nil, counted(2)), 0)
	shows("with them", d.rows(time.Second, ended, counted(3)), 5)
	shows("afterwards", d.rows(time.Second, nil, map[uint64]*turns{}), 0)
	other := newDirectory()
	other.rows(time.Second, nil, counted(2))
	other.rows(time.Second, nil, map[uint64]*turns{})
	shows("too late", other.rows(time.Second, ended, map[uint64]*turns{}), 0)
}
