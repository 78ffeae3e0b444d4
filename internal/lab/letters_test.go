// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

// One to each peer, in each round, by both calls.
func TestLetters(t *testing.T) {
	w := newWorld(t)
	to, err := StartTargets(w, "", "sink", Target{Network: UDP4}, Target{Network: UDP4})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []Call{Sendto, Sendmsg} {
		x, err := StartLetters(w, "", "writer", Letters{Network: UDP4, To: to.Addrs, Rounds: 7, Size: 11, Call: call})
		if err != nil {
			t.Fatal(err)
		}
		before, err := w.Counters("")
		if err != nil {
			t.Fatal(err)
		}
		port, err := x.Run()
		if err != nil || port == 0 {
			t.Fatal(port, err)
		}
		after, err := w.Counters("")
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Since(before)["UdpOutDatagrams"]; got != 14 {
			t.Errorf("%s: %d datagrams, want 14", call, got)
		}
	}
}
