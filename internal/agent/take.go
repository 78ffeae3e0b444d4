// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/watch"
)

// A Counts is the sink that turns rows of tools into metrics.
type Counts struct {
	*Meter

	mu      sync.Mutex
	known   map[watch.ServiceKey]time.Time // services whose side is known, and the time of the last row that showed it
	waiting []undecided                    // the oldest first
}

// An undecided is a row with both ports of a connection, while it is unknown which of the two is the
// server's. A later row of another tool may show it.
type undecided struct {
	since   time.Time
	in, out watch.ServiceKey
	count   func(k watch.ServiceKey)
}

// Limits of the memory about sides, and the time that a row waits.
const (
	mostKnown     = 20_000
	mostUndecided = 10_000
	decideAfter   = 3 * time.Second
)

// takers are the functions that turn the rows of each view of a tool into metrics.
var takers = map[string]func(c *Counts, r reader){
	"flows/services":   takeService,
	"soconnect/":       takeConnect,
	"soaccept/":        takeAccept,
	"tcpretrans/":      takeRetransmit,
	"tcplife/":         takeSession,
	"skbdrop/drops":    takeDrop,
	"dns/":             takeQuery,
	"gethostlatency/":  takeLookup,
	"tcpsynbl/drops":   takeListenDrop,
	"tcpsynbl/backlog": takeBacklog,
}

// Row counts one row.
func (c *Counts) Row(r *row.Row) error {
	c.Add(agentRows, 1, r.Schema.Tool)
	if r.Pending() {
		return nil // the row at its end counts
	}
	if take := takers[r.Schema.Tool+"/"+r.Schema.View]; take != nil {
		take(c, reader{r})
	}
	return nil
}

// Tool notes that a tool is attached. From now on its counts and losses are zero, not absent.
func (c *Counts) Tool(name string) {
	c.Add(agentRows, 0, name)
	c.Add(agentLost, 0, name, "ring_full")
}

// End counts losses and settles waiting rows.
func (c *Counts) End(e row.End) error {
	c.Settle()
	for _, l := range e.Losses {
		c.Add(agentLost, float64(l.N), e.Tool, l.Kind)
	}
	return nil
}

// reader reads cells by the ids of their columns. An absent cell is zero.
type reader struct{ *row.Row }

// value returns a number in the unit of the id, and whether the cell has one.
func (r reader) value(id string) (float64, bool) {
	i := r.Schema.Index(id)
	if i < 0 {
		return 0, false
	}
	switch r.Cells[i].Kind {
	case row.Uint, row.Int, row.Bool:
		return r.Schema.Columns[i].Value(&r.Cells[i]), true
	}
	return 0, false
}

func (r reader) number(id string) float64 { n, _ := r.value(id); return n }

func (r reader) text(id string) string {
	if c := r.Get(id); c != nil && c.Kind == row.Text {
		return c.S
	}
	return ""
}

// or returns the text of a column, or the string absent if the cell has none.
func (r reader) or(id, absent string) string {
	if s := r.text(id); s != "" {
		return s
	}
	return absent
}

func (r reader) addr(id string) netip.Addr {
	if c := r.Get(id); c != nil && c.Kind == row.Addr {
		return c.IP()
	}
	return netip.Addr{}
}

func (r reader) hist(id string) *kern.Hist {
	if c := r.Get(id); c != nil {
		h, _ := c.Ref.(*kern.Hist)
		return h
	}
	return nil
}

// id returns a number that identifies something, 0 if there is none.
func (r reader) id(id string) uint64 {
	if c := r.Get(id); c != nil && c.Kind == row.Uint {
		return c.N
	}
	return 0
}

// example is a value of the row's process and socket.
func (r reader) example(seconds float64) example {
	e := example{seconds: seconds, pid: r.id("pid"), sock: r.id("sock")}
	if c := r.Get("time"); c != nil && c.Kind == row.Time {
		e.at = time.Unix(0, int64(c.N))
	}
	return e
}

func (r reader) who() watch.Who {
	return watch.Who{Comm: strings.Clone(r.text("comm")), Container: strings.Clone(r.text("container")), Netns: uint32(r.number("netns"))}
}

// in is the service of the process at its local port. out is the remote service that it uses.
func (r reader) in() watch.ServiceKey {
	return watch.ServiceKey{Who: r.who(), Lport: uint16(r.number("lport"))}
}

func (r reader) out() watch.ServiceKey {
	return watch.ServiceKey{Who: r.who(), Out: true, Raddr: r.addr("raddr"), Rport: uint16(r.number("rport"))}
}

// name is the label value of a service.
func name(k watch.ServiceKey) string {
	if k.Comm == "" {
		k.Comm = "(unknown)"
	}
	return k.String()
}

// labels returns the values of the labels that who names, and more.
func labels(k watch.ServiceKey, more ...string) []string {
	side := "in"
	if k.Out {
		side = "out"
	}
	return in(name(k), k.Who, slices.Concat([]string{side}, more)...)
}

// in returns the values of the labels that at names.
func in(what string, w watch.Who, more ...string) []string {
	return slices.Concat([]string{what}, placeOf(w.Container), more)
}

// heard notes that the side of a service is known.
func (c *Counts) heard(k watch.ServiceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[watch.ServiceKey]time.Time{}
	}
	if _, ok := c.known[k]; !ok && len(c.known) >= mostKnown {
		var oldest watch.ServiceKey
		var when time.Time
		n := 0
		for s, t := range c.known { // the oldest of some: the order of a map is random
			if n++; when.IsZero() || t.Before(when) {
				oldest, when = s, t
			}
			if n == 16 {
				break
			}
		}
		delete(c.known, oldest)
	}
	c.known[k] = c.now()
}

// which returns the one of two services that is known.
func (c *Counts) which(in, out watch.ServiceKey) (k watch.ServiceKey, ok bool) {
	if _, ok := c.known[in]; ok {
		return in, true
	}
	if _, ok := c.known[out]; ok || out.Rport == 0 {
		return out, ok
	}
	return in, false
}

// guess returns the service if neither is known: the smaller port is the server's.
func guess(in, out watch.ServiceKey) watch.ServiceKey {
	if out.Rport == 0 || in.Lport != 0 && in.Lport < out.Rport {
		return in
	}
	return out
}

// side counts a row with both ports for its service, now or when that is known.
func (c *Counts) side(r reader, count func(k watch.ServiceKey)) {
	in, out := r.in(), r.out()
	c.mu.Lock()
	k, ok := c.which(in, out)
	if !ok && len(c.waiting) < mostUndecided {
		c.waiting = append(c.waiting, undecided{c.now(), in, out, count})
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	if !ok {
		k = guess(in, out)
	}
	count(k)
}

// sideNow returns the service of a row with both ports. If it is unknown, it is a guess.
func (c *Counts) sideNow(r reader) watch.ServiceKey {
	in, out := r.in(), r.out()
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.which(in, out); ok {
		return k
	}
	return guess(in, out)
}

// Settle counts the waiting rows whose side is known now, and the rows that have waited long enough.
func (c *Counts) Settle() {
	c.mu.Lock()
	var ready []func()
	left := c.waiting[:0]
	for _, u := range c.waiting {
		k, ok := c.which(u.in, u.out)
		if !ok && c.now().Sub(u.since) < decideAfter {
			left = append(left, u)
			continue
		}
		if !ok {
			k = guess(u.in, u.out)
		}
		ready = append(ready, func() { u.count(k) })
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	c.mu.Unlock()
	for _, do := range ready {
		do()
	}
}

func takeService(c *Counts, r reader) {
	k := r.out()
	if r.text("side") != "out" {
		k = r.in()
	}
	c.heard(k)
	l := labels(k)
	c.Merge(turnSeconds, r.hist("turn_us"), l...)
	if k.Out {
		c.Merge(firstSeconds, r.hist("first_us"), l...)
	}
	c.Set(serviceConns, r.number("conns"), l...)
	c.Add(sentBytes, r.number("tx_bytes"), l...)
	c.Add(receivedBytes, r.number("rx_bytes"), l...)
	for p := watch.Part(0); int(p) < len(watch.Parts{}); p++ {
		if ms := r.number(p.String() + "_ms"); ms > 0 {
			c.Add(timeSeconds, ms/1000, labels(k, p.String())...)
		}
	}
}

func takeConnect(c *Counts, r reader) {
	if proto := r.text("proto"); proto != "" && proto != "tcp" {
		return
	}
	k := r.out()
	c.heard(k)
	errno := r.or("errno", "ok")
	c.Add(connects, 1, labels(k, errno)...)
	if us, ok := r.value("latency_us"); ok && errno == "ok" {
		c.observe(connectSeconds, r.example(us/1e6), labels(k)...)
	}
}

func takeAccept(c *Counts, r reader) {
	k := r.in()
	if k.Lport != 0 {
		c.heard(k)
	}
	c.Add(accepts, 1, labels(k, r.or("errno", "ok"))...)
	if us, ok := r.value("latency_us"); ok {
		c.observe(acceptSeconds, r.example(us/1e6), labels(k)...)
	}
}

func takeRetransmit(c *Counts, r reader) {
	segments, cause := max(r.number("segments"), 1), strings.Clone(r.or("cause", "unknown"))
	c.side(r, func(k watch.ServiceKey) { c.Add(retransmits, segments, labels(k, cause)...) })
}

func takeSession(c *Counts, r reader) {
	end, by := strings.Clone(r.or("end", "orderly")), strings.Clone(r.text("reset_by"))
	ms, lived := r.value("established_ms")
	lasted := r.example(ms / 1e3) // now: the row is reused
	c.side(r, func(k watch.ServiceKey) {
		c.Add(sessions, 1, labels(k, end)...)
		if by != "" {
			c.Add(resets, 1, labels(k, by)...)
		}
		if lived {
			c.observe(sessionSeconds, lasted, labels(k)...)
		}
	})
}

func takeDrop(c *Counts, r reader) {
	c.Add(drops, r.number("count"), r.or("reason", "unclassified"), r.text("proto"))
}

func takeQuery(c *Counts, r reader) {
	k := r.out()
	c.Add(queries, 1, in(name(k), k.Who, r.or("rcode", "unknown"))...)
	if us, ok := r.value("latency_us"); ok {
		c.observe(querySeconds, r.example(us/1e6), in(name(k), k.Who)...)
	}
}

func takeLookup(c *Counts, r reader) {
	k := r.who()
	c.Add(lookups, 1, in(k.Comm, k, r.or("result", "success"))...)
	if us, ok := r.value("latency_us"); ok {
		c.observe(lookupSeconds, r.example(us/1e6), in(k.Comm, k)...)
	}
}

func takeListenDrop(c *Counts, r reader) {
	k := r.in()
	c.Add(listenDrops, 1, in(name(k), k.Who, r.or("queue", "unknown"))...)
}

func takeBacklog(c *Counts, r reader) {
	if h := r.hist("used"); h != nil && h.Count > 0 {
		c.Set(listenDepth, float64(h.Max), name(r.in()), r.or("metric", "unknown"))
	}
}

// troubles are counters of the kernel that should not grow.
var troubles = map[string]bool{
	"UdpRcvbufErrors": true, "UdpSndbufErrors": true, "UdpInCsumErrors": true, "UdpMemErrors": true,
	"Udp6RcvbufErrors": true, "Udp6SndbufErrors": true, "Udp6InCsumErrors": true, "Udp6MemErrors": true,
	"TcpExtListenOverflows": true, "TcpExtListenDrops": true, "TcpExtTCPReqQFullDrop": true, "TcpExtTCPReqQFullDoCookies": true,
	"TcpExtTCPBacklogDrop": true, "TcpExtPruneCalled": true, "TcpExtRcvPruned": true, "TcpExtOfoPruned": true, "TcpExtTCPAbortOnMemory": true,
	"TcpExtTCPMemoryPressures": true, "TcpRetransSegs": true, "TcpAttemptFails": true, "TcpEstabResets": true, "TcpInErrs": true, "TcpOutRsts": true,
	"TcpExtTCPTimeouts": true, "TcpExtTCPSpuriousRtxHostQueues": true, watch.SoftnetDropped: true, watch.SoftnetSqueezed: true,
}

// Grown counts the growth of a counter of the kernel.
func (c *Counts) Grown(name string, by int64) {
	if troubles[name] && by > 0 {
		c.Add(kernelCounters, float64(by), name)
	}
}
