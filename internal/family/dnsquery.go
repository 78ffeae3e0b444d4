// SPDX-License-Identifier: Apache-2.0

package family

import (
	"seine/internal/kern"
	"seine/internal/probe"
)

// DNSQueries are the points of dnsquery.h, for a tool that has a program for answers, at a
// point of that name.
var DNSQueries = []probe.Point{
	{Name: "gone"}, {Name: "thread"},
	{Name: "asked", Optional: true, Misses: "the server of queries that NAT redirects, from sockets that are not connected"},
	{Name: "answer"}, {Name: "query"},
}

// DNSKey is struct query_key of dnsquery.h.
type DNSKey struct {
	Sock      uint64
	Server    kern.Addr
	Proto, ID uint16
	Pad       uint32
}

// DNSQuery is struct query of dnsquery.h.
type DNSQuery struct {
	Start, Last   kern.Mono
	Who           kern.Who
	Laddr         kern.Addr
	Netns         uint32
	Retries       uint32
	Lport, Family uint16
	Len, Pad      uint16
	Question      [272]byte
}

// Name gives the name and the type that were asked for, if the query has them.
func (q *DNSQuery) Name() (name string, typ uint16, ok bool) {
	return kern.DNSQuestion(q.Question[:min(int(q.Len), len(q.Question))])
}
