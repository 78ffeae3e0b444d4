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
		return map[uint64]*turns{8: c}
	}
	ended := []event{{About: about{Service: 8, Turns: kern.Opt(5), TX: 10}}}
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

// TestShards: turns of one service that several processors counted are one row. Those of another
// service are not added.
func TestShards(t *testing.T) {
	counted := map[uint64]*turns{}
	for id, us := range map[uint64]uint64{8: 100, 9: 200, 11: 400, 16: 800} {
		counted[id] = &turns{}
		counted[id].Turn.Add(us)
		counted[id].First.Add(us / 2)
	}
	conns := []event{{About: about{Service: 8, Role: client, Turns: 3}}, {About: about{Service: 16, Role: client, Turns: 1}}}
	conns[1].Rport = 1
	got := newDirectory().rows(time.Second, conns, counted)
	if len(got) != 2 || got[0].Turn.Count != 3 || got[0].Turn.Sum != 700 || got[0].First.Sum != 350 || got[1].Turn.Sum != 800 {
		t.Errorf("got %+v", got)
	}
}
