// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net/netip"
	"strings"
)

// place is the scope of a name: a process, or its network namespace.
type place struct {
	Who
	addr netip.Addr
}

// named is the name that was seen last.
type named struct {
	name      string
	at, other int64 // when it was seen, and when another name was; 0: never
}

// addrNames are the names of addresses: from DNS answers to programs, and from the server
// names in their TLS handshakes. If there are too many, the names that were not seen for
// longest are evicted.
type addrNames struct {
	most       int
	keep       int64 // seconds for which a second name makes both uncertain
	young, old map[place]named
}

func (t *addrNames) tell(at int64, who Who, addr netip.Addr, name string) {
	if name == "" || !addr.IsValid() {
		return
	}
	t.put(at, place{who, addr}, name)
	t.put(at, place{Who{Netns: who.Netns}, addr}, name)
}

func (t *addrNames) put(at int64, p place, name string) {
	n, known := t.find(p)
	switch {
	case !known:
		n = named{name: name, at: at}
	case n.name == name:
		n.at = max(n.at, at)
	case at >= n.at:
		n = named{name: name, at: at, other: n.at}
	default:
		n.other = max(n.other, at)
	}
	if len(t.young) >= t.most/2 {
		t.old, t.young = t.young, nil
	}
	if t.young == nil {
		t.young = map[place]named{}
	}
	t.young[p] = n
}

func (t *addrNames) find(p place) (named, bool) {
	n, ok := t.young[p]
	if !ok {
		n, ok = t.old[p]
	}
	return n, ok
}

// of is the name of an address for a process, else for its network namespace. It is empty if
// there are several.
func (t *addrNames) of(who Who, addr netip.Addr) string {
	for _, p := range []place{{who, addr}, {Who{Netns: who.Netns}, addr}} {
		if n, ok := t.find(p); ok {
			if n.other != 0 && n.at-n.other < t.keep {
				return ""
			}
			return n.name
		}
	}
	return ""
}

// learn takes the names in an answer of a name server.
func (m *Model) learn(at int64, r reader) {
	for text := range strings.SplitSeq(r.text("addrs"), ",") {
		if a, err := netip.ParseAddr(text); err == nil {
			m.names.tell(at, r.who(), a, r.text("name"))
		}
	}
}

// takeHello takes the server name of a TLS handshake.
func takeHello(m *Model, at int64, r reader) {
	m.names.tell(at, r.who(), r.addr("raddr"), r.text("name"))
}

// Name is the name of an address for a process; empty: there is none, or several.
func (m *Model) Name(who Who, addr netip.Addr) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names.of(who, addr)
}
