// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// turns is struct turns of flows.bpf.c: the turns of one service, in microseconds.
type turns struct{ Turn, First kern.Hist }

func (t *turns) add(o *turns) {
	t.Turn.Merge(&o.Turn)
	t.First.Merge(&o.First)
}

// service is a process name of a container or network namespace, with one port that
// it serves or one address that it sends requests to.
type service struct {
	Service  string    `col:"service,width=28" help:"process, and the port that it serves or the address that it asks"`
	Side     side      `col:"side,width=4" help:"in: it serves; out: it sends requests"`
	Cgroup   uint64    `col:"cgroup,as=cgroup;container,as=container" help:"control group of the process; container name where known"`
	Netns    kern.ID32 `col:"netns,width=10" help:"network namespace, by inode"`
	Comm     kern.Comm `col:"comm,width=16" help:"process name"`
	Lport    kern.ID16 `col:"lport,width=5" help:"in: local port"`
	Raddr    kern.Addr `col:"raddr,width=15" help:"out: remote address"`
	Rport    kern.ID16 `col:"rport,width=5" help:"out: remote port"`
	Conns    uint64    `col:"conns,width=6,sum" help:"connections in the interval"`
	Turns    kern.Opt  `col:"turns,width=7,sum" help:"turns that ended in the interval; absent where both directions overlap"`
	Rate     kern.Opt  `col:"turns_s,head=TURNS/s,div=10,prec=1,width=8" help:"turns a second"`
	P50      kern.Opt  `col:"p50_us,div=10,width=8" help:"half of the turns took less"`
	P90      kern.Opt  `col:"p90_us,div=10,width=8" help:"nine of ten turns took less"`
	P99      kern.Opt  `col:"p99_us,div=10,width=8" help:"99 of 100 turns took less"`
	Turn     hist      `col:"turn_us,unit=us,inner" help:"time of turns; in: from the first byte of the request until the answer was delivered; out: from the request until the answer was read"`
	First    hist      `col:"first_us,unit=us,inner" help:"out: from the request to the first byte of the answer"`
	Part     parts     `col:",inline"`
	Overlaps uint64    `col:"overlaps,width=8,sum" help:"times that both directions overlapped"`
	TX       uint64    `col:"tx_bytes,head=TX_KB,scale=1024,width=7,sum" help:"payload bytes sent"`
	RX       uint64    `col:"rx_bytes,head=RX_KB,scale=1024,width=7,sum" help:"payload bytes received"`
	Resent   uint64    `col:"retrans,width=7,sum" help:"segments sent again"`
	Verdict  word      `col:"verdict,width=9" help:"the part that takes most of the time of turns; absent if there are fewer than ten turns, and where both directions overlap"`
	Where    word      `col:"where,head=WHERE THE TIME OF A TURN GOES,width=40" help:"the largest parts of the time of turns, in percent"`
}

// side is in or out.
type side role

func (side) Kind() row.Kind { return row.Text }

func (s *side) Cell(c *row.Cell) {
	if c.SetText("in"); role(*s) == client {
		c.SetText("out")
	}
}

// hist is a histogram; an empty one is absent.
type hist struct{ kern.Hist }

func (h *hist) Cell(c *row.Cell) {
	if *c = (row.Cell{}); h.Count > 0 {
		h.Hist.Cell(c)
	}
}

// word is a text; an empty one is absent.
type word string

func (word) Kind() row.Kind { return row.Text }

func (w *word) Cell(c *row.Cell) {
	if *c = (row.Cell{}); *w != "" {
		c.SetText(string(*w))
	}
}

// ofTurn reports whether a part belongs to turns. Time before the first turn, between
// turns and after the last one does not.
func ofTurn(part int) bool {
	switch partNames[part] {
	case "connect", "accept", "idle", "closing", "unknown":
		return false
	}
	return true
}

// fewTurns is the least number of turns for a verdict.
const fewTurns = 10

// shards is SHARDS of flows.bpf.c: the bits of the number under which turns are counted that are
// not the service's.
const shards = 3

// unsharded adds up the turns of each service that different processors counted.
func unsharded(counted map[uint64]*turns) map[uint64]*turns {
	out := make(map[uint64]*turns, len(counted))
	for id, t := range counted {
		if id &^= shards; out[id] == nil {
			out[id] = t
		} else {
			out[id].add(t)
		}
	}
	return out
}

// directory makes services of connections.
type directory struct {
	named map[uint64]*service // by number, without figures; also those of the last output
	early map[uint64]*turns   // of the last output, of services that had no name yet
}

func newDirectory() *directory { return &directory{named: map[uint64]*service{}} }

// rows adds up the connections of an output and the turns that were counted.
func (d *directory) rows(span time.Duration, moved []event, counted map[uint64]*turns) []service {
	now := map[uint64]*service{}
	for i := range moved {
		e, a := &moved[i], &moved[i].About
		s := now[a.Service]
		if s == nil {
			s = name(e)
			now[a.Service] = s
		}
		s.Conns++
		s.Turns += a.Turns
		s.Overlaps += uint64(a.Overlaps)
		s.Part.add(&e.Part)
		s.TX += a.TX
		s.RX += a.RX
		s.Resent += uint64(a.Fast) + uint64(a.TLP) + uint64(a.RTO) + uint64(a.Syn)
	}
	early := map[uint64]*turns{}
	counted = unsharded(counted)
	for id, t := range d.early {
		if c := counted[id]; c != nil {
			c.add(t)
		} else if now[id] != nil {
			counted[id] = t
		}
	}
	for id, t := range counted {
		s := now[id]
		if s == nil {
			was := d.named[id]
			if was == nil {
				// The end of its connections may still be in the ring. Or a filter hides all of them.
				if d.early[id] == nil {
					early[id] = t
				}
				continue
			}
			again := *was
			s = &again
			now[id] = s
		}
		s.Turn.Hist, s.First.Hist = t.Turn, t.First
	}
	d.early = early
	out := make([]service, 0, len(now))
	d.named = make(map[uint64]*service, len(now))
	for id, s := range now {
		bare := *s
		bare.Conns, bare.Turns, bare.Overlaps, bare.TX, bare.RX, bare.Resent, bare.Part = 0, 0, 0, 0, 0, 0, parts{}
		d.named[id] = &bare
		s.finish(span)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b service) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Cgroup, b.Cgroup))
	})
	return out
}

// noAddr is an address that is absent.
var noAddr = func() (a kern.Addr) {
	for i := range a {
		a[i] = 0xff
	}
	return a
}()

// name is the service of a connection.
func name(e *event) *service {
	s := &service{Side: side(e.About.Role), Cgroup: e.Cgroup, Netns: e.Netns, Comm: e.Comm, Raddr: noAddr}
	comm := strings.TrimRight(string(e.Comm[:]), "\x00")
	if e.About.Role == client {
		s.Raddr, s.Rport = e.Raddr, kern.ID16(e.Rport)
		to := netip.AddrPortFrom(netip.AddrFrom16(e.Raddr).Unmap(), e.Rport)
		s.Service = fmt.Sprintf("%s → %s", comm, to)
	} else {
		s.Lport = kern.ID16(e.Lport)
		s.Service = fmt.Sprintf("%s :%d (in)", comm, e.Lport)
	}
	return s
}

// finish fills in what is made of other columns.
func (s *service) finish(span time.Duration) {
	s.Where = word(s.Part.largest(3, ofTurn))
	s.Rate, s.P50, s.P90, s.P99 = kern.Opt(kern.None), kern.Opt(kern.None), kern.Opt(kern.None), kern.Opt(kern.None)
	if overlapping(max(uint64(s.Turns), s.Turn.Count), s.Overlaps) {
		s.Turns, s.Turn, s.First = kern.Opt(kern.None), hist{}, hist{}
		return
	}
	s.Turns = kern.Opt(s.Turn.Count) // over the same turns as the histogram
	s.Rate = kern.Opt(math.Round(float64(s.Turn.Count) / span.Seconds() * 10))
	if s.Turn.Count == 0 {
		return
	}
	quantile := func(q float64) kern.Opt { return kern.Opt(math.Round(s.Turn.Quantile(q) * 10)) }
	s.P50, s.P90, s.P99 = quantile(0.5), quantile(0.9), quantile(0.99)
	if s.Turn.Count < fewTurns {
		return
	}
	most := -1
	for i, v := range s.Part.each() {
		if ofTurn(i) && v > 0 && (most < 0 || v > s.Part.each()[most]) {
			most = i
		}
	}
	if most >= 0 {
		s.Verdict = word(partNames[most])
	}
}
