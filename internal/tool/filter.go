// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"seine/internal/kern"
)

// Filter is a set of filters: enum filter of filter.h, same bits.
type Filter uint32

// The filters.
const (
	FilterPID Filter = 1 << iota
	FilterComm
	FilterUID
	FilterCgroup
	FilterNetns
	FilterFamily
	FilterProto
	FilterPort
	FilterLport
	FilterRport
	FilterAddr
	FilterLaddr
	FilterRaddr
	FilterIP4
	FilterIP6
	FilterDev
)

// The filters of a tool follow from the functions of filter.h that its programs call.
const (
	ByWho   = FilterPID | FilterComm | FilterUID | FilterCgroup
	BySock  = FilterNetns | FilterFamily | FilterProto
	ByTuple = FilterPort | FilterLport | FilterRport | FilterAddr | FilterLaddr | FilterRaddr | FilterIP4 | FilterIP6
)

// Sockets is the kinds of sockets that a tool can have rows of. A filter for others is refused: a
// run would wait for rows that never come.
type Sockets struct {
	Families, Protos []string          // by name, as --family and --proto take them; nil: all
	Else             map[string]string // families and protocols that it lacks, with the tool that has them
}

// OfIP are IPv4 and IPv6 sockets of these protocols; none: of all.
func OfIP(protos ...string) Sockets {
	return Sockets{Families: []string{"inet", "inet6"}, Protos: protos}
}

// Or names the tools that have the sockets that this one lacks.
func (s Sockets) Or(other map[string]string) Sockets {
	s.Else = other
	return s
}

// Wanted is the filters of one run, as the user asked for them.
type Wanted struct {
	On          Filter
	PIDs        []uint32
	UIDs        []uint32
	Comm        *Glob
	Cgroup      uint64
	CgroupLevel int
	Netns       []uint32
	Families    []uint16
	Protos      []uint16
	Ports       [3][]PortRange // either end, local, remote
	Nets        []Net
	Dev         string
}

// A PortRange is ports From to To, both included.
type PortRange struct{ From, To uint16 }

// A Net is a network and the FilterAddr, FilterLaddr, FilterRaddr it stands for.
type Net struct {
	Prefix netip.Prefix
	For    Filter
}

// constants writes the filters into the object before it is loaded.
func (w *Wanted) constants(spec *ebpf.CollectionSpec) error {
	if _, ok := spec.Variables["filter_on"]; !ok {
		if w.On != 0 {
			return fmt.Errorf("filters: the object has none")
		}
		return nil
	}
	set := map[string]any{
		"filter_on": uint32(w.On), "filter_self": OwnPID(),
		"filter_cgroup": w.Cgroup, "filter_cgroup_level": uint32(w.CgroupLevel),
	}
	if w.Comm != nil {
		set["comm_moves"], set["comm_loops"], set["comm_start"], set["comm_accept"] = w.Comm.moves, w.Comm.loops, w.Comm.start, w.Comm.accept
	}
	var families uint64
	for _, f := range w.Families {
		families |= 1 << f
	}
	set["filter_families"] = families
	if w.On&FilterDev != 0 {
		var name [16]byte
		copy(name[:15], w.Dev)
		set["filter_dev"] = name
	}
	for name, val := range set {
		if err := setConstant(spec, name, val); err != nil {
			return err
		}
	}
	for name, n := range map[string]int{
		"filter_pids": len(w.PIDs), "filter_uids": len(w.UIDs), "filter_netns": len(w.Netns), "filter_protos": len(w.Protos),
		"filter_nets": len(w.Nets) + 1, // see fillNets
	} {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = uint32(max(n, 1))
		}
	}
	if m := spec.Maps["filter_ports"]; m != nil && w.On&(FilterPort|FilterLport|FilterRport) == 0 {
		m.MaxEntries = 1
	}
	return nil
}

// fill writes the sets into the maps.
func (w *Wanted) fill(maps map[string]*ebpf.Map) error {
	put := func(name string, keys []uint32) error {
		for _, k := range keys {
			if err := maps[name].Put(k, uint8(1)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	var protos []uint32
	for _, p := range w.Protos {
		protos = append(protos, uint32(p))
	}
	for name, keys := range map[string][]uint32{
		"filter_pids": w.PIDs, "filter_uids": w.UIDs, "filter_netns": w.Netns, "filter_protos": protos,
	} {
		if err := put(name, keys); err != nil {
			return err
		}
	}
	if err := w.fillPorts(maps["filter_ports"]); err != nil {
		return err
	}
	return w.fillNets(maps["filter_nets"])
}

func (w *Wanted) fillPorts(m *ebpf.Map) error {
	const words = 65536 / 64
	for set, ranges := range w.Ports {
		var bitmap [words]uint64
		for _, r := range ranges {
			for p := int(r.From); p <= int(r.To); p++ {
				bitmap[p/64] |= 1 << (p % 64)
			}
		}
		for i, word := range bitmap {
			if word == 0 {
				continue
			}
			if err := m.Put(uint32(set*words+i), word); err != nil {
				return fmt.Errorf("filter_ports: %w", err)
			}
		}
	}
	return nil
}

// netKey is struct net_key of filter.h.
type netKey struct {
	Bits uint32
	Addr [16]byte
}

// fillNets writes each network with the sets of the networks around it, since
// the kernel's lookup finds only the narrowest.
func (w *Wanted) fillNets(m *ebpf.Map) error {
	nets := w.Nets
	if len(nets) > 0 {
		// IPv4 addresses lie inside ::/0 as they are stored here, but ::/0 does not mean
		// them: an entry with an empty set stands between them.
		nets = append(slices.Clip(nets), Net{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)})
	}
	for _, n := range nets {
		var sets Filter
		for _, o := range nets {
			if o.Prefix.Bits() <= n.Prefix.Bits() && o.Prefix.Contains(n.Prefix.Addr()) {
				sets |= o.For
			}
		}
		width := n.Prefix.Bits()
		if n.Prefix.Addr().Is4() {
			width += 96
		}
		if err := m.Put(netKey{uint32(width), n.Prefix.Addr().As16()}, uint32(sets)); err != nil {
			return fmt.Errorf("filter_nets: %w", err)
		}
	}
	return nil
}

// A Glob is patterns for process names as the automaton of filter.h: a state means
// that so many characters of a pattern are matched, and a star is one that loops.
type Glob struct {
	moves                [256]uint64
	loops, start, accept uint64
}

// ParseGlob reads patterns, separated by commas, of characters, ? for any one, *
// for any number and [a-z] or [!a-z] for one of a set; \ takes the next character as
// it is. The kernel keeps only the beginning of a longer name, so the beginning of a pattern is
// compared with it.
func ParseGlob(pattern string) (*Glob, error) {
	g := &Glob{start: 1}
	at, from := 0, 0 // the state so far, and that which the pattern began in
	for i := 0; i < len(pattern); i++ {
		var set [256]bool
		switch c := pattern[i]; c {
		case ',':
			if i == 0 || i == len(pattern)-1 || pattern[i-1] == ',' {
				return nil, fmt.Errorf("%q has nothing on one side of a comma", pattern)
			}
			g.accept |= 1 << at
			at++
			from = at
			g.start |= 1 << at
			continue
		case '*':
			if at-from < kern.CommLen {
				g.loops |= 1 << at
			}
			continue
		case '?':
			for b := range set {
				set[b] = true
			}
		case '[':
			n, err := parseSet(pattern[i:], &set)
			if err != nil {
				return nil, err
			}
			i += n - 1
		case '\\':
			if i++; i == len(pattern) {
				return nil, fmt.Errorf("%q ends in a lone backslash", pattern)
			}
			set[pattern[i]] = true
		default:
			set[c] = true
		}
		if at-from == kern.CommLen {
			if g.loops>>from != 0 {
				return nil, fmt.Errorf("%q asks for more than the %d characters that the kernel keeps of a name", pattern, kern.CommLen)
			}
			continue
		}
		if at++; at > 60 {
			return nil, fmt.Errorf("%q are too many names: 60 characters are the most", pattern)
		}
		for b, in := range set {
			if in {
				g.moves[b] |= 1 << at
			}
		}
	}
	g.accept |= 1 << at
	return g, nil
}

// parseSet reads [abc], [a-z], [!a-z] at the start of s, and says how long it is.
func parseSet(s string, set *[256]bool) (int, error) {
	i, not := 1, false
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		not = true
		i++
	}
	for start := i; i < len(s) && (s[i] != ']' || i == start); i++ {
		lo, hi := s[i], s[i]
		if i+2 < len(s) && s[i+1] == '-' && s[i+2] != ']' {
			hi = s[i+2]
			i += 2
		}
		if lo > hi {
			return 0, fmt.Errorf("%q: the range %c-%c is empty", s, lo, hi)
		}
		for b := int(lo); b <= int(hi); b++ {
			set[b] = true
		}
	}
	if i >= len(s) {
		return 0, fmt.Errorf("%q: the [ is not closed", s)
	}
	if not {
		for b := range set {
			set[b] = !set[b]
		}
	}
	return i + 1, nil
}

// Match runs the automaton as the kernel side does.
func (g *Glob) Match(name string) bool {
	states := g.start
	for i := 0; i < len(name) && i < 16; i++ {
		states = states<<1&g.moves[name[i]] | states&g.loops
	}
	return states&g.accept != 0
}
