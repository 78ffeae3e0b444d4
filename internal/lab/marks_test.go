// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

// Packets that are sent through a third host are forwarded there, whatever
// their mark.
func TestMarksVia(t *testing.T) {
	w := newWorld(t, "a", "router", "b")
	if err := w.Via("a", "router", "b"); err != nil {
		t.Fatal(err)
	}
	for n, counter := range map[Network]string{UDP4: "IpForwDatagrams", UDP6: "Ip6OutForwDatagrams"} {
		to, err := StartTargets(w, "b", "sink", Target{Network: n})
		if err != nil {
			t.Fatal(err)
		}
		m, err := StartMarks(w, "a", "sender", Marks{Network: n, Addr: to.Addrs[0], None: 2, ECT1: 3, ECT0: 5, CE: 7})
		if err != nil {
			t.Fatal(err)
		}
		before, err := w.Counters("router")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Run(); err != nil {
			t.Fatal(err)
		}
		after, err := w.Counters("router")
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Since(before)[counter]; got != 17 {
			t.Errorf("%s: %d datagrams forwarded, want 17", n, got)
		}
		if err := to.End(); err != nil {
			t.Fatal(err)
		}
	}
}
