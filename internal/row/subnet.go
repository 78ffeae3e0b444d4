// SPDX-License-Identifier: Apache-2.0

package row

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Subnet tells the network of an address: how many of its bits are the network's, or a list
// of networks.
type Subnet struct {
	Bits4, Bits6 int
	Among        []netip.Prefix // if there are any: the smallest first
}

// ParseSubnet reads what --by has behind an address: 24 is for IPv4, and IPv6 has 64
// then; 48 can only be for IPv6, and IPv4 addresses stay whole; 24/56 is for both.
func ParseSubnet(text string) (s Subnet, err error) {
	first, second, both := strings.Cut(text, "/")
	n, err := strconv.Atoi(first)
	s = Subnet{Bits4: n, Bits6: 64}
	switch {
	case err != nil:
	case both:
		s.Bits6, err = strconv.Atoi(second)
	case n > 32:
		s = Subnet{Bits4: 32, Bits6: n}
	}
	if err != nil || s.Bits4 < 0 || s.Bits4 > 32 || s.Bits6 < 0 || s.Bits6 > 128 {
		return s, fmt.Errorf("%q is not a valid prefix length: write 24, or 24/56 for IPv4 and IPv6", text)
	}
	return s, nil
}

// ParseSubnets reads a list of networks. An address of several is in the smallest of them.
func ParseSubnets(text string) (s Subnet, err error) {
	for w := range strings.SplitSeq(text, ",") {
		w = strings.TrimSpace(w)
		if !strings.Contains(w, "/") {
			a, err := netip.ParseAddr(w)
			if err != nil || a.Zone() != "" {
				return s, fmt.Errorf("%q is not a valid network: write 10.0.0.0/8", w)
			}
			s.Among = append(s.Among, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(w)
		if err != nil {
			return s, fmt.Errorf("%q is not a valid network: write 10.0.0.0/8", w)
		}
		if p != p.Masked() {
			return s, fmt.Errorf("%q is an address in a network: write %s, or %s", w, p.Masked(), p.Addr())
		}
		s.Among = append(s.Among, p)
	}
	slices.SortStableFunc(s.Among, func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
	return s, nil
}

// Namer puts the network in the place of an address. One that is in none of a list has none.
func (s Subnet) Namer(_ *Row, c *Cell) {
	if c.Kind != Addr {
		return
	}
	a, bits := c.IP().Unmap(), s.Bits6
	if s.Among != nil {
		in := slices.IndexFunc(s.Among, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) })
		if *c = (Cell{}); in >= 0 {
			c.SetText(s.Among[in].String())
		}
		return
	}
	if a.Is4() {
		bits = s.Bits4
	}
	if p, err := a.WithZone("").Prefix(bits); err == nil {
		c.SetText(p.String())
	}
}
