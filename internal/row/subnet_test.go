// SPDX-License-Identifier: Apache-2.0

package row

import (
	"net/netip"
	"strings"
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

func TestSubnets(t *testing.T) {
	s, err := ParseSubnets("0.0.0.0/0, 10.0.0.0/8,10.1.0.0/16,127.0.0.1,2001:db8::/32,2001:db8:1::/48")
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"10.1.2.3": "10.1.0.0/16", "10.2.2.3": "10.0.0.0/8", "192.0.2.1": "0.0.0.0/0", "127.0.0.1": "127.0.0.1/32", "127.0.0.2": "0.0.0.0/0",
		"::ffff:10.1.2.3": "10.1.0.0/16", "2001:db8:1::7": "2001:db8:1::/48", "2001:db8:2::7": "2001:db8::/32", "2001:db9::7": "",
	} {
		b := netip.MustParseAddr(addr).As16()
		cell := Cell{Kind: Addr, S: string(b[:])}
		if s.Namer(nil, &cell); cell.S != want || (cell.Kind == Null) != (want == "") {
			t.Errorf("%s is in %q, want %q", addr, cell.S, want)
		}
	}
	for text, want := range map[string]string{
		"": "not a valid network", "x": "not a valid network", "10.0.0.0/33": "not a valid network", "10.0.0.0/8,": "not a valid network",
		"fe80::1%lo": "not a valid network", "10.1.2.3/8": "write 10.0.0.0/8, or 10.1.2.3",
	} {
		if _, err := ParseSubnets(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
