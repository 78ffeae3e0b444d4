// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"seine/internal/row"
	"seine/internal/watch"
	"seine/internal/why"
)

// A process is a line of the screen Processes: all processes of one name in one container or
// network namespace.
type process struct {
	watch.Who
	seconds         float64
	finding         *why.Finding
	pid             uint32 // one of them
	serves, asks    uint64 // services
	conns, turns    uint64
	tx, rx, retrans uint64
	failed          uint64 // connects
	resets, drops   uint64
	closed          uint64
}

func compareWho(a, b watch.Who) int {
	return cmp.Or(strings.Compare(a.Comm, b.Comm), strings.Compare(a.Container, b.Container), cmp.Compare(a.Netns, b.Netns))
}

// counted is a column of a number of processes.
func counted[T any](id, head, help string, cells, rank int, troubling bool, n func(x *T) uint64) column[T] {
	c := column[T]{id: id, head: head, help: help, kind: row.Uint, width: cells, rank: rank,
		cell: func(x *T, c *row.Cell) { c.SetUint(n(x)) }, text: func(x *T) string { return number(float64(n(x))) }}
	if troubling {
		c.style = func(x *T) style { return attention(n(x)) }
	}
	return c
}

// bytesASecond is a column of a rate.
func bytesASecond[T any](id, head, help string, rank int, n func(x *T) float64) column[T] {
	return column[T]{id: id, head: head, help: help, kind: row.Uint, width: 9, rank: rank,
		cell: func(x *T, c *row.Cell) { c.SetUint(uint64(n(x))) }, text: func(x *T) string { return rate(n(x)) }}
}

var processes = sync.OnceValue(func() *table[process] {
	return newTable("processes", "worst",
		func(p *process) watch.Who { return p.Who },
		func(a, b *process) int { return compareWho(a.Who, b.Who) },
		slices.Concat([]column[process]{
			{id: "process", head: "PROCESS", help: "name of the process", kind: row.Text, width: 16, grow: 1, left: true, up: true,
				cell: func(p *process, c *row.Cell) { setText(c, p.Comm) }, text: func(p *process) string { return cmp.Or(p.Comm, "(unknown)") }},
			{id: "pid", head: "PID", help: "one of the processes of that name", kind: row.Uint, width: 7, rank: 3, up: true,
				cell: func(p *process, c *row.Cell) { setUint(c, uint64(p.pid), p.pid != 0) }, text: func(p *process) string { return absent(p.pid != 0, plainNumber(p.pid)) }},
			counted("conns", "CONNS", "the most connections at once in a second", 6, 0, false, func(p *process) uint64 { return p.conns }),
			bytesASecond("tx_bytes_s", "OUT", "payload bytes sent, a second", 0, func(p *process) float64 { return float64(p.tx) / p.seconds }),
			bytesASecond("rx_bytes_s", "IN", "payload bytes received, a second", 0, func(p *process) float64 { return float64(p.rx) / p.seconds }),
			{id: "verdict", head: "VERDICT", help: "the worst finding of seine why about it", kind: row.Text, width: 18, left: true,
				cell:  func(p *process, c *row.Cell) { setText(c, says(p.finding, nil, 0, true)) },
				text:  func(p *process) string { return says(p.finding, nil, 0, true) },
				style: func(p *process) style { return hue(p.finding) }},
			counted("retrans", "RESENT", "segments retransmitted in the window", 6, 2, true, func(p *process) uint64 { return p.retrans }),
			counted("failed", "FAILED", "connects that failed in the window", 6, 1, true, func(p *process) uint64 { return p.failed }),
			counted("resets", "RESETS", "connections that ended by a reset in the window", 6, 4, true, func(p *process) uint64 { return p.resets }),
			counted("drops", "DROPS", "packets of its sockets that the kernel dropped in the window", 6, 5, true, func(p *process) uint64 { return p.drops }),
			counted("closed", "CLOSED", "connections that ended in the window", 7, 6, false, func(p *process) uint64 { return p.closed }),
			counted("serves", "SERVES", "ports that it serves", 6, 7, false, func(p *process) uint64 { return p.serves }),
			counted("asks", "ASKS", "addresses that it calls", 6, 7, false, func(p *process) uint64 { return p.asks }),
			{id: "turns_s", head: "TURNS/s", help: "requests with their answers, a second", kind: row.Uint, div: 10, width: 8, rank: 6,
				cell: func(p *process, c *row.Cell) { c.SetUint(tenths(float64(p.turns) / p.seconds)) }, text: func(p *process) string { return number(float64(p.turns) / p.seconds) }},
			{id: "worst", head: "WORST", help: "the default order: findings first, then by bytes", kind: row.Uint, rank: -1,
				cell: func(p *process, c *row.Cell) { c.SetUint(worst(p.finding, float64(p.tx+p.rx)/p.seconds)) }, text: func(*process) string { return "" }},
		}, whoColumns(func(p *process) *watch.Who { return &p.Who })))
})

// processes adds up services and events by process.
func (s *Snapshot) processes(do func(*process)) {
	all := map[watch.Who]*process{}
	get := func(w watch.Who) *process {
		p := all[w]
		if p == nil {
			p = &process{Who: w, seconds: s.seconds(), finding: s.verdictOf(w)}
			all[w] = p
		}
		return p
	}
	for _, v := range s.View.Services {
		p := get(v.Who)
		if v.Out {
			p.asks++
		} else {
			p.serves++
		}
		p.conns += v.Conns
		p.tx += v.TX
		p.rx += v.RX
		p.retrans += v.Retrans
		if !v.Mixed() {
			p.turns += v.Turns
		}
	}
	for _, t := range s.View.Tallies {
		if t.Comm == "" {
			continue
		}
		p := get(t.Who)
		p.pid = max(p.pid, t.PID)
		switch t.Kind {
		case watch.Connecting:
			p.failed += t.Count
		case watch.Closed:
			if p.closed += t.Count; t.What != "" {
				p.resets += t.Count
			}
		case watch.Drop:
			p.drops += t.Count
		}
	}
	for _, p := range all {
		do(p)
	}
}
