// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"container/list"
	"net/netip"
)

// ConnKey is a TCP connection, seen from one of its ends.
type ConnKey struct {
	Netns        uint32
	Laddr, Raddr netip.Addr
	Lport, Rport uint16
}

// A Conn is the last row of a connection.
type Conn struct {
	ConnKey
	Who    Who
	PID    uint32
	Role   string // client, server, unknown
	Rname  string // of the remote address; empty: not known
	Last   int64  // second
	Closed bool
	Turns  uint64 // of the last interval, like the fields below
	TX, RX uint64
	Fast   uint64
	TLP    uint64
	RTO    uint64
	SRTT   uint64 // microseconds
	MinRTT uint64
	WallMS float64
	Parts  Parts
}

// conns are the latest connections. The one that has been quiet for longest is evicted
// first.
type conns struct {
	most    int
	by      map[ConnKey]*list.Element
	order   *list.List // the most recently active one is in front
	evicted uint64
}

func (c *conns) get(k ConnKey) *Conn {
	if c.by == nil {
		c.by, c.order = map[ConnKey]*list.Element{}, list.New()
	}
	if e := c.by[k]; e != nil {
		c.order.MoveToFront(e)
		return e.Value.(*Conn)
	}
	if len(c.by) >= c.most {
		last := c.order.Back()
		delete(c.by, last.Value.(*Conn).ConnKey)
		c.order.Remove(last)
		c.evicted++
	}
	n := &Conn{ConnKey: k}
	c.by[k] = c.order.PushFront(n)
	return n
}

func takeConn(m *Model, at int64, r reader) {
	c := m.conns.get(ConnKey{uint32(r.count("netns")), r.addr("laddr"), r.addr("raddr"), r.port("lport"), r.port("rport")})
	who := r.who()
	*c = Conn{
		ConnKey: c.ConnKey, Who: who, Rname: m.names.of(who, c.Raddr), PID: uint32(r.count("pid")), Role: r.text("role"), Last: at, Closed: r.has("closed"),
		Turns: r.count("turns"), TX: r.count("tx_bytes"), RX: r.count("rx_bytes"),
		Fast: r.count("retrans_fast"), TLP: r.count("retrans_tlp"), RTO: r.count("retrans_rto"),
		SRTT: r.count("srtt_us"), MinRTT: r.count("min_rtt_us"), WallMS: r.value("wall_ms"),
	}
	for i := range c.Parts {
		c.Parts[i] = r.value(partNames[i] + "_ms")
	}
	m.followed.saw(c)
}
