// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"seine/internal/row"
	"seine/internal/watch"
)

func plainNumber[N uint16 | uint32](n N) string { return strconv.FormatUint(uint64(n), 10) }

// A conn is a line of the screen Connections.
type conn struct {
	watch.Conn
	now int64 // second of the snapshot
}

// quiet is how many seconds ago it sent or received data.
func (c *conn) quiet() int64 { return max(c.now-c.Last, 0) }

// fresh reports whether its numbers are current.
func (c *conn) fresh() bool { return c.quiet() <= 1 }

// moved is n if the connection moved data in the last second, else 0.
func (c *conn) moved(n uint64) float64 {
	if !c.fresh() {
		return 0
	}
	return float64(n) * 1000 / max(c.WallMS, 1000)
}

// doing says in a word what it does.
func (c *conn) doing() string {
	switch {
	case c.Closed:
		return "closed"
	case !c.fresh():
		return "quiet " + took(float64(c.quiet())*1e6)
	}
	var most watch.Part
	for i, ms := range c.Parts {
		if ms > c.Parts[most] {
			most = watch.Part(i)
		}
	}
	if c.WallMS == 0 || c.Parts[most] == 0 {
		return ""
	}
	return most.String() + " " + percent(min(c.Parts[most]/c.WallMS, 1))
}

func (c *conn) retrans() uint64 { return c.Fast + c.TLP + c.RTO }

func compareConns(a, b *watch.ConnKey) int {
	return cmp.Or(a.Laddr.Compare(b.Laddr), cmp.Compare(a.Lport, b.Lport), a.Raddr.Compare(b.Raddr), cmp.Compare(a.Rport, b.Rport), cmp.Compare(a.Netns, b.Netns))
}

var connections = sync.OnceValue(func() *table[conn] {
	return newTable("connections", "bytes_s",
		func(c *conn) watch.ConnKey { return c.ConnKey },
		func(a, b *conn) int { return compareConns(&a.ConnKey, &b.ConnKey) },
		slices.Concat([]column[conn]{
			{id: "process", head: "PROCESS", help: "name of the process", kind: row.Text, width: 11, grow: 1, left: true, up: true,
				cell: func(x *conn, c *row.Cell) { setText(c, x.Who.Comm) }, text: func(x *conn) string { return cmp.Or(x.Who.Comm, "(unknown)") }},
			{id: "pid", head: "PID", help: "process", kind: row.Uint, width: 7, rank: 4, up: true,
				cell: func(x *conn, c *row.Cell) { setUint(c, uint64(x.PID), x.PID != 0) }, text: func(x *conn) string { return absent(x.PID != 0, plainNumber(x.PID)) }},
			{id: "local", head: "LOCAL", help: "local address and port", kind: row.Text, width: 21, grow: 2, rank: 3, left: true, up: true, cut: middle,
				cell: func(x *conn, c *row.Cell) { c.SetText(watch.Endpoint(x.Laddr, x.Lport)) }, text: func(x *conn) string { return watch.Endpoint(x.Laddr, x.Lport) }},
			{id: "lport", head: "PORT", help: "local port", kind: row.Uint, rank: -1, up: true,
				cell: func(x *conn, c *row.Cell) { c.SetUint(uint64(x.Lport)) }, text: func(x *conn) string { return plainNumber(x.Lport) }},
			{id: "remote", head: "REMOTE", help: "remote address and port", kind: row.Text, width: 21, grow: 2, left: true, up: true, cut: middle,
				cell: func(x *conn, c *row.Cell) { c.SetText(watch.Endpoint(x.Raddr, x.Rport)) }, text: func(x *conn) string { return watch.Endpoint(x.Raddr, x.Rport) }},
			{id: "rname", head: "NAME", help: "name of the remote address, as a name server or a TLS client told it; absent if none did", kind: row.Text, width: 16, grow: 1, rank: 8, left: true, up: true,
				cell: func(x *conn, c *row.Cell) { setText(c, x.Rname) }, text: func(x *conn) string { return x.Rname }},
			{id: "role", head: "ROLE", help: "client: it connected; server: it was accepted", kind: row.Text, width: 6, rank: 6, left: true, up: true,
				cell: func(x *conn, c *row.Cell) { setText(c, x.Role) }, text: func(x *conn) string { return x.Role }},
			bytesASecond("tx_bytes_s", "OUT", "payload bytes sent, a second", 0, func(x *conn) float64 { return x.moved(x.TX) }),
			bytesASecond("rx_bytes_s", "IN", "payload bytes received, a second", 0, func(x *conn) float64 { return x.moved(x.RX) }),
			{id: "srtt_us", head: "RTT", help: "smoothed round-trip time", kind: row.Uint, width: 7, rank: 1,
				cell: func(x *conn, c *row.Cell) { setUint(c, x.SRTT, x.SRTT != 0) }, text: func(x *conn) string { return absent(x.SRTT != 0, took(float64(x.SRTT))) }},
			{id: "min_rtt_us", head: "LEAST", help: "least round-trip time of the last minutes", kind: row.Uint, width: 7, rank: 7,
				cell: func(x *conn, c *row.Cell) { setUint(c, x.MinRTT, x.MinRTT != 0) }, text: func(x *conn) string { return absent(x.MinRTT != 0, took(float64(x.MinRTT))) }},
			counted("retrans", "RESENT", "segments retransmitted in its last second", 6, 2, true, (*conn).retrans),
			{id: "turns", head: "TURNS", help: "requests with their answers in its last second", kind: row.Uint, width: 6, rank: 5,
				cell: func(x *conn, c *row.Cell) { c.SetUint(x.Turns) }, text: func(x *conn) string { return number(float64(x.Turns)) }},
			{id: "doing", head: "MOSTLY", help: "the part that took most of its last second, or how long it has been quiet", kind: row.Text, width: 14, left: true,
				cell: func(x *conn, c *row.Cell) { setText(c, x.doing()) }, text: (*conn).doing,
				style: func(x *conn) style {
					if x.Closed || !x.fresh() {
						return dim
					}
					return normal
				}},
			{id: "bytes_s", head: "BYTES", help: "the default order: payload bytes a second in both directions", kind: row.Uint, rank: -1,
				cell: func(x *conn, c *row.Cell) { c.SetUint(uint64(x.moved(x.TX) + x.moved(x.RX))) }, text: func(x *conn) string { return "" }},
			{id: "quiet_s", head: "QUIET", help: "seconds since it sent or received data", kind: row.Uint, rank: -1, up: true,
				cell: func(x *conn, c *row.Cell) { c.SetUint(uint64(x.quiet())) }, text: func(x *conn) string { return "" }},
			{id: "closed", head: "CLOSED", help: "true if it has ended", kind: row.Bool, rank: -1,
				cell: func(x *conn, c *row.Cell) { *c = row.Cell{Kind: row.Bool, N: uint64(flag(x.Closed))} }, text: func(x *conn) string { return "" }},
			{id: "laddr", head: "LADDR", help: "local address", kind: row.Addr, rank: -1, up: true,
				cell: func(x *conn, c *row.Cell) { setAddr(c, x.Laddr) }, text: func(x *conn) string { return x.Laddr.String() }},
			{id: "raddr", head: "RADDR", help: "remote address", kind: row.Addr, rank: -1, up: true,
				cell: func(x *conn, c *row.Cell) { setAddr(c, x.Raddr) }, text: func(x *conn) string { return x.Raddr.String() }},
			{id: "rport", head: "RPORT", help: "remote port", kind: row.Uint, rank: -1, up: true,
				cell: func(x *conn, c *row.Cell) { c.SetUint(uint64(x.Rport)) }, text: func(x *conn) string { return plainNumber(x.Rport) }},
			{id: "tx_bytes", head: "TX", help: "payload bytes sent in its last second", kind: row.Uint, rank: -1,
				cell: func(x *conn, c *row.Cell) { c.SetUint(x.TX) }, text: func(x *conn) string { return size(float64(x.TX)) }},
			{id: "rx_bytes", head: "RX", help: "payload bytes received in its last second", kind: row.Uint, rank: -1,
				cell: func(x *conn, c *row.Cell) { c.SetUint(x.RX) }, text: func(x *conn) string { return size(float64(x.RX)) }},
		}, whoColumns(func(x *conn) *watch.Who { return &x.Who })))
})

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// connections calls do for each line of the screen: open connections, and those that ended in
// the window. only chooses among them; nil: all.
func (s *Snapshot) connections(only func(*watch.Conn) bool, do func(*conn)) {
	now, since := s.View.To.Unix()-1, s.View.From.Unix()
	one := conn{now: now}
	s.View.Conns(func(c *watch.Conn) {
		if c.Closed && c.Last < since || c.Last > now || only != nil && !only(c) {
			return
		}
		one.Conn = *c
		do(&one)
	})
}

// ofService matches the connections of a service.
func ofService(k watch.ServiceKey) func(*watch.Conn) bool {
	return func(c *watch.Conn) bool {
		if c.Who != k.Who {
			return false
		}
		if k.Out {
			return c.Raddr == k.Raddr && c.Rport == k.Rport
		}
		return c.Lport == k.Lport
	}
}
