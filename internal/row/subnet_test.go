// SPDX-License-Identifier: Apache-2.0

package row

import (
	"net/netip"
	"testing"
)

func TestSubnet(t *testing.T) {
	for _, c := range []struct{ text, addr, want string }{
		{"24", "192.0.2.77", "192.0.2.0/24"},
		{"24", "::ffff:192.0.2.77", "192.0.2.0/24"},
		{"24", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"48", "2001:db8:1:2:3::4", "2001:db8:1::/48"},
		{"48", "192.0.2.77", "192.0.2.77/32"},
		{"16/32", "192.0.2.77", "192.0.0.0/16"},
		{"16/32", "2001:db8:1:2:3::4", "2001:db8::/32"},
		{"0/0", "192.0.2.77", "0.0.0.0/0"},
	} {
		s, err := ParseSubnet(c.text)
		if err != nil {
			t.Fatal(err)
		}
		b := netip.MustParseAddr(c.addr).As16()
		cell := Cell{Kind: Addr, S: string(b[:])}
		if s.Namer(nil, &cell); cell.S != c.want || cell.Kind != Text {
			t.Errorf("%s of %s is %q, want %q", c.text, c.addr, cell.S, c.want)
		}
	}
	for _, text := range []string{"", "x", "-1", "129", "33/64", "24/129", "24/", "24/64/3"} {
		if s, err := ParseSubnet(text); err == nil {
			t.Errorf("%q is taken for %+v", text, s)
		}
	}
}
