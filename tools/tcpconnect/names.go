// SPDX-License-Identifier: Apache-2.0

package tcpconnect

import (
	"net/netip"

	"seine/internal/kern"
)

// answer is struct dns_answer of tcpconnect.bpf.c.
type answer struct {
	kern.Head
	Len     uint32
	Pad     uint32
	Message [904]byte
}

// place is an address in a network namespace.
type place struct {
	netns uint32
	addr  netip.Addr
}

// names is the last name that was looked up for each address. If there are
// many, the oldest are forgotten.
type names struct{ young, old map[place]string }

const manyNames = 32768

func (n *names) learn(a *answer) {
	msg := a.Message[:min(int(a.Len), len(a.Message))]
	name, _, ok := kern.DNSQuestion(msg)
	if !ok {
		return
	}
	if n.young == nil || len(n.young) >= manyNames {
		n.young, n.old = map[place]string{}, n.young
	}
	for _, addr := range kern.DNSAddrs(msg) {
		n.young[place{uint32(a.Netns), addr}] = name
	}
}

func (n *names) of(netns uint32, addr kern.Addr) string {
	p := place{netns, netip.AddrFrom16(addr).Unmap()}
	if name, ok := n.young[p]; ok {
		return name
	}
	return n.old[p]
}
