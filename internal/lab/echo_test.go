// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// Every kind of socket gets an answer to each request, and none from a host
// that ignores them.
func TestEcho(t *testing.T) {
	w := newWorld(t, "client", "server")
	for _, n := range []Network{Ping4, Ping6, Raw4, Raw6} {
		x, err := StartEcho(w, "client", "echo", Echo{Network: n, Addr: w.Addr("server", n), Count: 7, Ident: 77})
		if err != nil {
			t.Fatal(err)
		}
		r, err := x.Run()
		if err != nil {
			t.Fatal(n, err)
		}
		for i, ns := range r.NS {
			if ns <= 0 {
				t.Errorf("%s: echo %d took %d ns", n, i+1, ns)
			}
		}
		if len(r.NS) != 7 {
			t.Errorf("%s: %d echoes, want 7", n, len(r.NS))
		}
	}
	if err := w.Sysctl("server", "net.ipv4.icmp_echo_ignore_all", "1"); err != nil {
		t.Fatal(err)
	}
	x, err := StartEcho(w, "client", "echo", Echo{Network: Raw4, Addr: w.Addr4("server"), Count: 1, Wait: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Run()
	if err != nil {
		t.Fatal(err)
	}
	if r.NS[0] != -1 {
		t.Errorf("a host that ignores echoes answered in %d ns", r.NS[0])
	}
}
