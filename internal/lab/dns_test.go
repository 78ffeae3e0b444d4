// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// TestDNS: Go's resolver gets from the server what the names say, in its time.
func TestDNS(t *testing.T) {
	w := newWorld(t)
	if _, err := StartDNS(w, "", "server", DNS{Delay: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	p, err := StartLookups(w, "", "client", "nameserver ::1\noptions timeout:1 attempts:1\n", "a.example.", "nx.example.", "big.example.", "mute.example.")
	if err != nil {
		t.Fatal(err)
	}
	var got []Lookup
	if err := p.Call("go", &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 {
		t.Fatalf("%d lookups, want 4", len(got))
	}
	for i, l := range got {
		if n := []int{2, 0, 2, 0}[i]; len(l.Addrs) != n || l.NotFound != (i == 1) || l.Timeout != (i == 3) {
			t.Errorf("%+v: want %d addresses", l, n)
		}
		if l.NS < int64(20*time.Millisecond) {
			t.Errorf("%s took %d ns, less than the server", l.Host, l.NS)
		}
	}
}
