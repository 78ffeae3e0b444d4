// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

// TestLoss: a segment that is dropped is sent again, and the kernel counts it.
func TestLoss(t *testing.T) {
	for _, network := range []Network{TCP4, TCP6} {
		w := newWorld(t, "client", "server")
		s, err := StartTCP(w, Sessions{Send: 333, Recv: 1, Network: network})
		if err != nil {
			t.Fatal(err)
		}
		l, err := StartLoss(Loss{To: s.Port, Data: 333, Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		before := counters(t, w, "client")
		if _, err := s.Run(); err != nil {
			t.Fatal(err)
		}
		check(t, "segments sent again", counters(t, w, "client").Since(before)["TcpRetransSegs"], 1)
		n, err := l.Seen()
		if err != nil || n != 2 {
			t.Errorf("%d segments matched (%v), want 2", n, err)
		}
	}
}
