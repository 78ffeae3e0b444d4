// SPDX-License-Identifier: Apache-2.0

package why

import (
	"net/netip"

	"seine/internal/watch"
)

// bothEnds tells which findings are of the two ends of the same connections.
type bothEnds struct {
	*watch.View
	met map[meeting]bool
}

// meeting is the services at the two ends of a connection.
type meeting struct{ client, server watch.ServiceKey }

// same reports whether the client calls the server. Services without a connection that is known, as in a recording of
// services, are told by the port and the address.
func (e bothEnds) same(server, client *Finding) bool {
	s, c := server.Object, client.Object
	if s.Lport == 0 || c.Rport == 0 {
		return false
	}
	return s.Lport == c.Rport && e.Local.In(c.Netns, c.Raddr, s.Netns) || e.met[meeting{calls(c), serves(s)}]
}

func serves(o Object) watch.ServiceKey { return watch.ServiceKey{Who: o.Who, Lport: o.Lport} }

func calls(o Object) watch.ServiceKey {
	return watch.ServiceKey{Who: o.Who, Out: true, Raddr: o.Raddr, Rport: o.Rport}
}

// end is the client's address and port. Both ends of a connection have them, also where its destination is rewritten on
// the way (DNAT), as for published ports of containers and for services of Kubernetes.
type end struct {
	netns  uint32 // of an address of loopback: each network namespace has its own
	client netip.AddrPort
}

func endOf(netns uint32, a netip.Addr, port uint16) end {
	if !a.IsLoopback() {
		netns = 0
	}
	return end{netns, netip.AddrPortFrom(a, port)}
}

// meetings finds the connections between services that have findings.
func meetings(all []*Finding, v *watch.View) map[meeting]bool {
	suspects, servers, clients := map[watch.ServiceKey]bool{}, false, false
	for _, f := range all {
		switch o := f.Object; {
		case o.Lport != 0:
			suspects[serves(o)], servers = true, true
		case o.Rport != 0:
			suspects[calls(o)], clients = true, true
		}
	}
	if !servers || !clients {
		return nil
	}
	served, called := map[end]watch.ServiceKey{}, map[end]watch.ServiceKey{}
	v.Conns(func(c *watch.Conn) {
		switch c.Role {
		case "server":
			if k := (watch.ServiceKey{Who: c.Who, Lport: c.Lport}); suspects[k] {
				served[endOf(c.Netns, c.Raddr, c.Rport)] = k
			}
		case "client":
			if k := (watch.ServiceKey{Who: c.Who, Out: true, Raddr: c.Raddr, Rport: c.Rport}); suspects[k] {
				called[endOf(c.Netns, c.Laddr, c.Lport)] = k
			}
		}
	})
	met := map[meeting]bool{}
	for at, client := range called {
		if server, ok := served[at]; ok {
			met[meeting{client, server}] = true
		}
	}
	return met
}
