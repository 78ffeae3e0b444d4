// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestOf: the name of a connection comes before that of the process, that before the
// one of the namespace, and that before any.
func TestOf(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	table := &Table{young: map[place]string{}}
	tell := func(n Name) { n.Addr = netip.MustParseAddr("::ffff:192.0.2.1"); table.learn(n) }
	tell(Name{Netns: 1, PID: 10, Name: "ten"})
	tell(Name{Netns: 1, PID: 11, Name: "eleven"})
	tell(Name{Netns: 2, PID: 20, Name: "twenty"})
	tell(Name{Netns: 2, PID: 20, Sock: 5, Name: "five"})
	for _, c := range []struct {
		n    Name
		want string
	}{
		{Name{Netns: 1, PID: 10}, "ten"},
		{Name{Netns: 1, PID: 12}, "eleven"},
		{Name{Netns: 2, PID: 20, Sock: 5}, "five"},
		{Name{Netns: 2, PID: 20, Sock: 6}, "five"}, // the last that it asked for
		{Name{Netns: 3, PID: 10}, "five"},
	} {
		c.n.Addr = addr
		if got := table.Of(c.n); got != c.want {
			t.Errorf("%+v is %q, want %q", c.n, got, c.want)
		}
	}
	if got := table.Of(Name{Addr: netip.MustParseAddr("192.0.2.2")}); got != "" {
		t.Errorf("an address that nobody was told is %q", got)
	}
}

// TestForget: what was not told again for long is forgotten, the rest stays.
func TestForget(t *testing.T) {
	table := &Table{young: map[place]string{}}
	tell := func(i int) {
		table.learn(Name{Netns: 1, PID: 1, Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Name: fmt.Sprint(i)})
	}
	for i := range many {
		tell(i)
	}
	of := func(i int) string {
		return table.Of(Name{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
	}
	if got := of(0); got != "" {
		t.Errorf("the first of many is still %q", got)
	}
	if got, want := of(many-1), fmt.Sprint(many-1); got != want {
		t.Errorf("the last one is %q, want %q", got, want)
	}
	if n := len(table.young) + len(table.old); n > 2*many+3 {
		t.Errorf("%d names are kept", n)
	}
}
