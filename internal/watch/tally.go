// SPDX-License-Identifier: Apache-2.0

package watch

import "net/netip"

// Kind is the kind of event that a tally counts.
type Kind string

// The kinds, and what What and Note are for each.
const (
	Retransmit Kind = "retransmit" // What: cause; Note: state
	Connecting Kind = "connect"    // a connect that failed or waits; What: errno, or "pending"
	Closed     Kind = "closed"     // a session that ended; What: who reset it, or ""; Note: how it ended
	QueueFull  Kind = "queue"      // of a listener; What: syn or accept
	Accepting  Kind = "accept"     // an accept that failed; What: errno
	NoSocket   Kind = "socket"     // a socket that could not be made; What: errno; Note: protocol
	Drop       Kind = "drop"       // of packets; What: reason; Note: protocol
	Query      Kind = "dns"        // What: the answer's code, or TIMEOUT, or "pending"
	Lookup     Kind = "lookup"     // a call of the C library; What: result, or "pending"
	Held       Kind = "held"       // a write that was held back; What: by what
	Overflow   Kind = "overflow"   // data that did not fit into a receive buffer; What: reason; Note: protocol
	Marked     Kind = "marked"     // received packets with a mark of congestion; Raddr: their sender
	Queued     Kind = "queued"     // packets that left a queue of a device, which is no event; What: its kind
)

// TallyKey is the key of a tally.
type TallyKey struct {
	Kind
	What, Note string
	Who
	Lport uint16
	Raddr netip.Addr
	Rport uint16
	Dev   string
}

// tallyCell is a second of a tally.
type tallyCell struct {
	count, bytes, big uint64
	segment           uint64
	limit             uint64
	row               uint64
	took              Hist
	example           string
	pid               uint32
}

// A Tally counts an event in a window.
type Tally struct {
	TallyKey
	Out     bool   // this side is probably the client
	Count   uint64 // packets, calls, sessions
	Bytes   uint64
	Big     uint64 // retransmissions of large segments
	Segment uint64 // the largest one
	Limit   uint64 // of a queue, or of a buffer
	InARow  uint64 // timeouts of one segment
	Took    Hist   // microseconds; of closed sessions: milliseconds that they lived
	Example string // such as the name that was looked up
	PID     uint32 // one of the processes
	Seconds int    // in which it happened
	Last    int64  // second
}

// Service is the service that it happened to.
func (t *Tally) Service() ServiceKey {
	k := ServiceKey{Who: t.Who, Out: t.Out}
	if t.Out {
		k.Raddr, k.Rport = t.Raddr, t.Rport
	} else {
		k.Lport = t.Lport
	}
	return k
}

// bigSegment is the least payload of a segment that may be too large for a path. Smaller ones
// fit into 1,280 bytes, the least MTU of IPv6.
const bigSegment = 1221

func (t *Tally) add(c *tallyCell) {
	t.Count += c.count
	t.Bytes += c.bytes
	t.Big += c.big
	t.Segment = max(t.Segment, c.segment)
	t.Limit = max(t.Limit, c.limit)
	t.InARow = max(t.InARow, c.row)
	t.Took.join(&c.took)
	t.Example = max(t.Example, c.example)
	t.PID = max(t.PID, c.pid)
}

// takers are the functions that take the rows of each view of a tool.
var takers = map[string]func(m *Model, at int64, r reader){
	"flows/services":    takeService,
	"flows/connections": takeConn,
	"tcpretrans/":       takeRetransmit,
	"soconnect/":        takeConnect,
	"tcplife/":          takeClosed,
	"tcpsynbl/drops":    takeQueue,
	"soaccept/":         takeAccept,
	"skbdrop/drops":     takeDrop,
	"skbdrop/counters":  takeCounter,
	"dns/":              takeQuery,
	"sni/":              takeHello,
	"gethostlatency/":   takeLookup,
	"tcpnagle/held":     takeHeld,
	"sormem/overflow":   takeOverflow,
	"ipecn/":            takeMarked,
	"qdisclat/":         takeQueued,
	Counters + "/":      takeRecorded,
}

// tally is the cell of a row; key has what is particular.
func (m *Model) tally(at int64, r reader, k TallyKey) *tallyCell {
	k.Who = r.who()
	c := m.tallies.cell(at, k)
	if c == nil {
		return &tallyCell{} // refused, and counted
	}
	c.pid = max(c.pid, uint32(r.count("pid")))
	return c
}

func takeRetransmit(m *Model, at int64, r reader) {
	c := m.tally(at, r, TallyKey{Kind: Retransmit, What: r.text("cause"), Note: r.text("state"), Lport: r.port("lport"), Raddr: r.addr("raddr"), Rport: r.port("rport")})
	bytes, segments := r.count("bytes"), max(r.count("segments"), 1)
	c.count++ // a packet of several segments is one loss
	c.bytes += bytes
	c.segment = max(c.segment, bytes/segments)
	if bytes/segments >= bigSegment {
		c.big++
	}
	c.row = max(c.row, r.count("attempts"))
}

// pendingWhat is the result of a pending operation.
const pendingWhat = "pending"

func takeConnect(m *Model, at int64, r reader) {
	what := r.text("errno")
	if r.Pending() {
		what = pendingWhat
	}
	if what == "" {
		return
	}
	if r.text("via") == "socket" { // socket(2) failed, before any connect
		m.tally(at, r, TallyKey{Kind: NoSocket, What: what, Note: r.text("proto")}).count++
		return
	}
	c := m.tally(at, r, TallyKey{Kind: Connecting, What: what, Note: r.text("proto"), Raddr: r.addr("raddr"), Rport: r.port("rport")})
	c.count++
	c.took.add(uint64(r.value("latency_us")))
}

func takeClosed(m *Model, at int64, r reader) {
	c := m.tally(at, r, TallyKey{Kind: Closed, What: r.text("reset_by"), Note: r.text("end"), Lport: r.port("lport"), Raddr: r.addr("raddr"), Rport: r.port("rport")})
	c.count++
	c.bytes += r.count("tx_bytes") + r.count("rx_bytes")
	if r.has("established_ms") {
		c.took.add(uint64(r.value("established_ms")))
	}
}

func takeQueue(m *Model, at int64, r reader) {
	c := m.tally(at, r, TallyKey{Kind: QueueFull, What: r.text("queue"), Lport: r.port("lport")})
	c.count++
	c.limit = max(c.limit, r.count("limit"))
}

func takeAccept(m *Model, at int64, r reader) {
	what := r.text("errno")
	if what == "" || r.Pending() {
		return
	}
	m.tally(at, r, TallyKey{Kind: Accepting, What: what, Lport: r.port("lport")}).count++
}

func takeDrop(m *Model, at int64, r reader) {
	c := m.tally(at, r, TallyKey{
		Kind: Drop, What: r.text("reason"), Note: r.text("proto"), Lport: r.port("lport"), Raddr: r.addr("raddr"), Rport: r.port("rport"), Dev: r.text("dev"),
	})
	c.count += r.count("count")
	c.bytes += r.count("bytes")
	c.example = max(c.example, r.text("location"))
}

func takeQuery(m *Model, at int64, r reader) {
	m.learn(at, r)
	what := r.text("rcode")
	if r.Pending() {
		what = pendingWhat
	}
	c := m.tally(at, r, TallyKey{Kind: Query, What: what, Note: r.text("proto"), Raddr: r.addr("raddr"), Rport: r.port("rport")})
	c.count++
	c.row = max(c.row, r.count("retries"))
	c.example = max(c.example, r.text("name"))
	if r.has("latency_us") {
		c.took.add(uint64(r.value("latency_us")))
	}
}

func takeLookup(m *Model, at int64, r reader) {
	what := r.text("result")
	if r.Pending() {
		what = pendingWhat
	}
	c := m.tally(at, r, TallyKey{Kind: Lookup, What: what})
	c.count++
	c.example = max(c.example, r.text("host"))
	c.took.add(uint64(r.value("latency_us")))
}

func takeHeld(m *Model, at int64, r reader) {
	h := r.hist("held_us")
	if h == nil {
		return
	}
	c := m.tally(at, r, TallyKey{Kind: Held, What: r.text("metric"), Raddr: r.addr("raddr"), Rport: r.port("rport")})
	c.count += h.Count
	c.took.merge(h)
}

func takeOverflow(m *Model, at int64, r reader) {
	if r.text("kind") != "receive" {
		return
	}
	c := m.tally(at, r, TallyKey{Kind: Overflow, What: r.text("reason"), Note: r.text("proto"), Lport: r.port("lport")})
	c.count += r.count("drops")
	c.limit = max(c.limit, r.count("limit_bytes"))
}

// takeMarked takes both kinds of rows that ipecn has: packets, and counts of a flow.
func takeMarked(m *Model, at int64, r reader) {
	n := r.count("segs")
	if r.has("ce") {
		n = r.count("ce")
	}
	if n == 0 || r.text("dir") != "in" {
		return
	}
	m.tally(at, r, TallyKey{Kind: Marked, Raddr: r.addr("saddr"), Dev: r.text("dev")}).count += n
}

func takeQueued(m *Model, at int64, r reader) {
	h := r.hist("latency_us")
	if h == nil {
		return
	}
	c := m.tally(at, r, TallyKey{Kind: Queued, What: r.text("kind"), Dev: r.text("dev")})
	c.count += r.count("dequeued")
	c.took.merge(h)
}
