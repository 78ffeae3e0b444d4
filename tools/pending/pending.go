// SPDX-License-Identifier: Apache-2.0

// Package pending shows what hangs now.
package pending

import (
	_ "embed"
	"slices"
	"time"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	All  bool          `flag:"all" help:"also show what is normal on a healthy machine: calls of accept that wait, requests whose answer nobody waits for, data of a peer that has gone"`
	Min  time.Duration `flag:"min" help:"only operations that are at least this old"`
	Max  time.Duration `flag:"max" help:"only operations that are at most this old"`
	Tick time.Duration `bpf:"tick_ns"`

	memory memory
	names  []question
}

func newConfig() any { return &config{Min: time.Second, Tick: kern.Jiffy()} }

// hang is struct hang of pending.bpf.c.
type hang struct {
	kern.Head
	kern.Tuple
	Sk       uint64     `col:"-"`
	Age      kern.Nanos `col:"age_ms,div=1000000,width=9,age" help:"how long it has hung"`
	Bytes    kern.Opt   `col:"bytes,width=8,sum" help:"unread: bytes that came and were not read; request, blocked: bytes that the peer has not acknowledged"`
	Count    kern.Opt   `col:"count,width=5,sum" help:"queued: connections in the queue of the listener, of which the oldest one is shown"`
	Name     made       `col:"type,width=5;name,width=20" help:"lookup: type of the record: A, AAAA, PTR; name that is asked for"`
	Sent     uint32     `col:"-"`
	Received uint32     `col:"-"`
	Holders  uint32     `col:"holders,width=7" help:"processes that have the socket open; the first one is shown"`
	Last     uint32     `col:"-"`
	Retries  uint16     `col:"retries,width=7" help:"connect, request: TCP timeouts after which it was sent again; lookup: how often the query was sent again"`
	Unsure   bool       `col:"-"`
	Pad      uint8      `col:"-"`
	What     what       `col:"what,width=8,left,key" words:",connect,lookup,queued,silent,request,unread,blocked,accept" help:"what hangs: see the list in the description"`
	Usual    bool       `col:"-"`
	Hidden   bool       `col:"-"`
}

// what is enum what of pending.bpf.c.
type what uint16

const (
	asker what = iota
	connect
	lookup
	queued
	silent
	request
	unread
	blocked
	accept
)

// made is a column whose text each makes: the number of a question, from 1 on.
type made struct{ V uint64 }

func (made) Kind() row.Kind    { return row.Text }
func (*made) Cell(c *row.Cell) { *c = row.Cell{} }

// key identifies an operation that hangs. For lookups, sk is the number of the
// question.
type key struct {
	sk   uint64
	what what
}

func keyOf(h *hang) key { return key{h.Sk, h.What} }

// again counts the processes that have a socket open, because the walk finds
// the socket once in each process.
func again(have, h *hang) {
	if have.Last != uint32(h.PID) {
		have.Holders++
		have.Last = uint32(h.PID)
	}
	if have.Hidden && !h.Hidden {
		have.Head, have.Hidden = h.Head, false
	}
}

// read finds everything that hangs.
func (c *config) read(s *tool.Session, add func(*hang)) error {
	began := kern.MonoNow()
	asks := map[uint64]bool{}
	first := func(h *hang) {
		h.Holders, h.Last = 1, uint32(h.PID)
		add(h)
	}
	err := tool.Iterate(s, "walk", func(h *hang) {
		if h.What == asker {
			asks[uint64(h.Sock)] = true
			return
		}
		first(h)
	})
	if err == nil && c.All {
		err = tool.Iterate(s, "accepts", first)
	}
	if err != nil {
		return err
	}
	return c.lookups(s, began, asks, first)
}

// whole chooses the rows that are shown.
func (c *config) whole(all []*hang) func(*hang, *row.Row) bool {
	c.memory.take(all)
	return func(h *hang, r *row.Row) bool {
		age := time.Duration(h.Age)
		if h.Hidden || age < c.Min || (c.Max > 0 && age > c.Max) || (!c.All && (h.Usual || c.memory.oneWay(h))) {
			return false
		}
		c.tidy(h, r)
		return true
	}
}

func (c *config) tidy(h *hang, r *row.Row) {
	if h.What == lookup {
		q := c.names[h.Name.V-1]
		if q.name != "" {
			r.Get("name").SetText(q.name)
		}
		if q.typ != "" {
			r.Get("type").SetText(q.typ)
		}
	}
	if h.What != connect && h.What != request && h.What != lookup {
		*r.Get("retries") = row.Cell{}
	}
	kern.NoEnd(r, "raddr", "rport")
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Output: tool.Exists[key, hang]{Type: "hang", Read: c.read, Key: keyOf, Again: again, Whole: c.whole},
		Show:   "what age_ms pid comm::12 laddr lport raddr rport bytes count name",
		Says:   "{what} hangs for {age_ms} ms[: {name}][, {bytes} bytes][, {count} connections]",
		Sort:   "age_ms",
	}
	if c.All {
		v.Points = []probe.Point{{Name: "call"}, {Name: "accepts"}}
	}
	return []tool.View{v}
}

// Tool is pending.
var Tool = &tool.Tool{
	Name: "pending", Layer: tool.Socket, Short: "what hangs now: connects, lookups, requests, readers, writers",
	Banner:  "Looking for what hangs.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("udp", "tcp", "mptcp"),
	Config:  newConfig,
	Points:  append(slices.Clone(family.DNSQueries), probe.Point{Name: "walk"}),
	Views:   views,
}
