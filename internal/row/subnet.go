// SPDX-License-Identifier: Apache-2.0

package row

import (
	"fmt"
	"strconv"
	"strings"
)

// A Subnet says how many bits of an address are those of its network.
type Subnet struct{ Bits4, Bits6 int }

// ParseSubnet reads what --by has behind an address: 24 is for IPv4, and IPv6 has 64
// then; 48 can only be for IPv6, and IPv4 addresses stay whole; 24/56 is for both.
func ParseSubnet(text string) (s Subnet, err error) {
	first, second, both := strings.Cut(text, "/")
	n, err := strconv.Atoi(first)
	s = Subnet{n, 64}
	switch {
	case err != nil:
	case both:
		s.Bits6, err = strconv.Atoi(second)
	case n > 32:
		s = Subnet{32, n}
	}
	if err != nil || s.Bits4 < 0 || s.Bits4 > 32 || s.Bits6 < 0 || s.Bits6 > 128 {
		return s, fmt.Errorf("%q is not a valid prefix length: write 24, or 24/56 for IPv4 and IPv6", text)
	}
	return s, nil
}

// Namer puts the network in the place of an address.
func (s Subnet) Namer(_ *Row, c *Cell) {
	if c.Kind != Addr {
		return
	}
	a, bits := c.IP().Unmap(), s.Bits6
	if a.Is4() {
		bits = s.Bits4
	}
	if p, err := a.WithZone("").Prefix(bits); err == nil {
		c.SetText(p.String())
	}
}
