// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"math"
	"net/netip"
	"slices"
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
	Older  bool   // it was there before the tool: its time counts from the start of the tool
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

// A conn is a Conn as the model keeps it. There may be 100,000 of them, so it is small.
type conn struct {
	key                          ConnKey
	who                          *Who    // of Model.owner: connections of a process share it
	rname                        *string // nil: it has none
	turns, tx, rx                uint64
	fast, tlp, rto, srtt, minRTT uint32
	pid, last                    uint32 // last: until 2106
	role                         uint8  // index into roles
	closed, before               bool   // before: Conn.Older
	wallMS                       float64
	parts                        Parts
	newer, older                 *conn
}

var roles = [...]string{"", "unknown", "client", "server"}

func (c *conn) set(m *Model, n *Conn) {
	c.who, c.rname, c.last, c.turns, c.tx, c.rx, c.pid, c.closed, c.before, c.wallMS, c.parts = m.owner(n.Who), m.words.ref(n.Rname), uint32(n.Last), n.Turns, n.TX, n.RX, n.PID, n.Closed, n.Older, n.WallMS, n.Parts
	c.fast, c.tlp, c.rto, c.srtt, c.minRTT = small(n.Fast), small(n.TLP), small(n.RTO), small(n.SRTT), small(n.MinRTT)
	c.role = uint8(max(0, slices.Index(roles[:], n.Role)))
}

func small(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

func (c *conn) show() Conn {
	rname := ""
	if c.rname != nil {
		rname = *c.rname
	}
	return Conn{
		ConnKey: c.key, Who: *c.who, Rname: rname, PID: c.pid, Role: roles[c.role], Last: int64(c.last), Closed: c.closed, Older: c.before, Turns: c.turns, TX: c.tx, RX: c.rx,
		Fast: uint64(c.fast), TLP: uint64(c.tlp), RTO: uint64(c.rto), SRTT: uint64(c.srtt), MinRTT: uint64(c.minRTT), WallMS: c.wallMS, Parts: c.parts,
	}
}

// conns are the latest connections. The one that has been quiet for longest is evicted
// first. One that has been quiet for long is removed: it may have ended, and its end was lost
// before it became a row.
type conns struct {
	most           int
	quiet          int64 // seconds
	by             map[ConnKey]*conn
	newest, oldest *conn // the most and the least recently active one
	evicted        uint64
}

// get returns the connection, which is the newest from now on.
func (c *conns) get(k ConnKey) *conn {
	if c.by == nil {
		c.by = map[ConnKey]*conn{}
	}
	n := c.by[k]
	switch {
	case n != nil:
		c.unlink(n)
	case len(c.by) >= c.most:
		n = c.oldest
		delete(c.by, n.key)
		c.unlink(n)
		c.evicted++
		*n = conn{key: k}
	default:
		n = &conn{key: k}
	}
	c.by[k] = n
	if n.older = c.newest; n.older != nil {
		n.older.newer = n
	} else {
		c.oldest = n
	}
	c.newest = n
	return n
}

// expire removes the connections that have been quiet for too long.
func (c *conns) expire(now int64) {
	for n := c.oldest; n != nil && int64(n.last) < now-c.quiet; n = c.oldest {
		delete(c.by, n.key)
		c.unlink(n)
	}
}

func (c *conns) unlink(n *conn) {
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		c.newest = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		c.oldest = n.newer
	}
	n.newer, n.older = nil, nil
}

func takeConn(m *Model, at int64, r reader) {
	c := Conn{
		ConnKey: ConnKey{uint32(r.count("netns")), r.addr("laddr"), r.addr("raddr"), r.port("lport"), r.port("rport")},
		Who:     r.who(), PID: uint32(r.count("pid")), Role: r.text("role"), Last: at, Closed: r.has("closed"), Older: r.has("older"),
		Turns: r.count("turns"), TX: r.count("tx_bytes"), RX: r.count("rx_bytes"),
		Fast: r.count("retrans_fast"), TLP: r.count("retrans_tlp"), RTO: r.count("retrans_rto"),
		SRTT: r.count("srtt_us"), MinRTT: r.count("min_rtt_us"), WallMS: r.value("wall_ms"),
	}
	c.Rname = m.names.of(c.Who, c.Raddr)
	for i := range c.Parts {
		c.Parts[i] = r.value(partNames[i] + "_ms")
	}
	m.conns.get(c.ConnKey).set(m, &c)
	m.followed.saw(&c)
}
