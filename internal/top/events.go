// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/internal/row"
	"seine/internal/watch"
	"seine/internal/words"
)

// An event is a line of the screen Events: a kind of event, its process, its count.
type event struct {
	*watch.Tally
}

// kinds are the words for events, and the tools that show them.
var kinds = map[watch.Kind]struct{ word, tool string }{
	watch.Retransmit: {"sent again", "tcpretrans"},
	watch.Connecting: {"connect failed", "soconnect"},
	watch.Closed:     {"closed", "tcplife"},
	watch.QueueFull:  {"queue full", "tcpsynbl"},
	watch.Accepting:  {"accept failed", "soaccept"},
	watch.NoSocket:   {"no socket", "soconnect --errors"},
	watch.Drop:       {"dropped", "skbdrop"},
	watch.Query:      {"DNS query", "dns"},
	watch.Lookup:     {"lookup", "gethostlatency"},
	watch.Held:       {"held back", "tcpnagle"},
	watch.Overflow:   {"buffer full", "sormem"},
	watch.Marked:     {"marked", "ipecn"},
}

// word names the event.
func (e *event) word() string {
	switch {
	case e.Kind == watch.Closed && e.What != "":
		return "reset"
	case e.Kind == watch.Connecting && e.What == "pending":
		return "connect waits"
	}
	return kinds[e.Kind].word
}

// detail says how or why it happened.
func (e *event) detail() string {
	var out []string
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	switch e.Kind {
	case watch.Closed:
		if e.What != "" {
			add("by " + e.What)
		}
		add(e.Note)
		add(size(float64(e.Bytes)))
	case watch.Query, watch.Lookup:
		add(e.What)
		add(e.Example)
	case watch.QueueFull:
		add(e.What)
		add("limit " + words.Thousands(e.Limit))
	case watch.Drop, watch.Marked:
		add(e.What)
		add(e.Note)
		add(e.Dev)
	default:
		add(e.What)
		add(e.Note)
	}
	return strings.Join(out, ", ")
}

// us is how long it took, in microseconds; sessions are counted in milliseconds.
func (e *event) us() float64 {
	if e.Kind == watch.Closed {
		return e.Took.Quantile(0.5) * 1000
	}
	return e.Took.Quantile(0.5)
}

// took is how long it took, in words.
func (e *event) took() string {
	switch {
	case e.Took.Count == 0:
		return "-"
	case e.Kind == watch.Closed && e.us() < 1000:
		return "<1 ms"
	}
	return took(e.us())
}

// trouble reports whether the event is a sign of a fault.
func (e *event) trouble() bool {
	switch e.Kind {
	case watch.Closed:
		return e.What != ""
	case watch.Query:
		return e.What != "NOERROR"
	case watch.Lookup:
		return e.What != ""
	}
	return true
}

func (e *event) style() style {
	if e.trouble() {
		return warn
	}
	return normal
}

func (e *event) who() string {
	if e.Comm == "" && e.Lport == 0 && !e.Raddr.IsValid() {
		return ""
	}
	if e.Kind == watch.NoSocket { // it has neither a port nor an address
		return cmp.Or(e.Comm, "(unknown)")
	}
	return name(e.Service())
}

func compareTallies(a, b *watch.TallyKey) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.What, b.What), strings.Compare(a.Note, b.Note), compareWho(a.Who, b.Who),
		cmp.Compare(a.Lport, b.Lport), a.Raddr.Compare(b.Raddr), cmp.Compare(a.Rport, b.Rport), strings.Compare(a.Dev, b.Dev))
}

var events = sync.OnceValue(func() *table[event] {
	return newTable("events", "last",
		func(e *event) watch.TallyKey { return e.TallyKey },
		func(a, b *event) int {
			return cmp.Or(cmp.Compare(flag(b.trouble()), flag(a.trouble())), compareTallies(&a.TallyKey, &b.TallyKey))
		},
		slices.Concat([]column[event]{
			{id: "last", head: "LAST", help: "when it happened last", kind: row.Time, width: 8, left: true,
				cell: func(e *event, c *row.Cell) { setTime(c, time.Unix(e.Last, 0)) }, text: func(e *event) string { return time.Unix(e.Last, 0).Format("15:04:05") }},
			{id: "count", head: "COUNT", help: "how often, in the last five minutes", kind: row.Uint, width: 7,
				cell: func(e *event, c *row.Cell) { c.SetUint(e.Count) }, text: func(e *event) string { return number(float64(e.Count)) }},
			{id: "event", head: "EVENT", help: "what happened", kind: row.Text, width: 14, left: true, up: true,
				cell: func(e *event, c *row.Cell) { c.SetText(e.word()) }, text: (*event).word, style: (*event).style},
			{id: "who", head: "TO WHOM", help: "process, and the port that it serves or the address that it calls", kind: row.Text, width: 22, grow: 2, left: true, up: true, cut: middle,
				cell: func(e *event, c *row.Cell) { setText(c, e.who()) }, text: (*event).who},
			{id: "detail", head: "HOW", help: "cause, reason, error or answer", kind: row.Text, width: 15, grow: 3, left: true, up: true,
				cell: func(e *event, c *row.Cell) { setText(c, e.detail()) }, text: (*event).detail},
			{id: "p50_us", head: "TOOK", help: "median time; of connections: median lifetime", kind: row.Uint, width: 8, rank: 3,
				cell: func(e *event, c *row.Cell) { setUint(c, uint64(e.us()), e.Took.Count > 0) }, text: (*event).took},
			{id: "pid", head: "PID", help: "one of the processes", kind: row.Uint, width: 7, rank: 4, up: true,
				cell: func(e *event, c *row.Cell) { setUint(c, uint64(e.PID), e.PID != 0) }, text: func(e *event) string { return absent(e.PID != 0, plainNumber(e.PID)) }},
			{id: "kind", head: "KIND", help: "sort of event", kind: row.Text, rank: -1, up: true,
				cell: func(e *event, c *row.Cell) { c.SetText(string(e.Kind)) }, text: func(e *event) string { return string(e.Kind) }},
			{id: "what", head: "WHAT", help: "cause, reason, error or answer alone", kind: row.Text, rank: -1, up: true,
				cell: func(e *event, c *row.Cell) { setText(c, e.What) }, text: func(e *event) string { return e.What }},
			{id: "lport", head: "LPORT", help: "local port of the service", kind: row.Uint, rank: -1, up: true,
				cell: func(e *event, c *row.Cell) { setUint(c, uint64(e.Lport), e.Lport != 0) }, text: func(e *event) string { return plainNumber(e.Lport) }},
			{id: "raddr", head: "RADDR", help: "remote address", kind: row.Addr, rank: -1, up: true,
				cell: func(e *event, c *row.Cell) { setAddr(c, e.Raddr) }, text: func(e *event) string { return e.Raddr.String() }},
			{id: "rport", head: "RPORT", help: "remote port", kind: row.Uint, rank: -1, up: true,
				cell: func(e *event, c *row.Cell) { setUint(c, uint64(e.Rport), e.Rport != 0) }, text: func(e *event) string { return plainNumber(e.Rport) }},
		}, whoColumns(func(e *event) *watch.Who { return &e.Who })))
})

func (s *Snapshot) events(do func(*event)) {
	if s.Events == nil {
		return
	}
	for _, t := range s.Events.Tallies {
		if kinds[t.Kind].word != "" {
			do(&event{t})
		}
	}
}

// totals counts each kind of event, in one line.
func (s *Snapshot) totals() string {
	sums, order := map[string]uint64{}, []string{"connect failed", "reset", "sent again", "dropped", "queue full", "accept failed", "no socket", "buffer full", "marked", "DNS query", "lookup", "closed"}
	s.events(func(e *event) { sums[e.word()] += e.Count })
	var out []string
	for _, w := range order {
		if sums[w] > 0 {
			out = append(out, fmt.Sprintf("%s %s", w, words.Thousands(sums[w])))
		}
	}
	if len(out) == 0 {
		return "Nothing has happened in the last 5 min."
	}
	return "Last 5 min: " + strings.Join(out, " · ")
}
