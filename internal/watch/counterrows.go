// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"math"
	"net/netip"
	"time"

	"seine/internal/row"
)

// CounterSchema is the schema of the kernel's counters as rows, for recordings. A row is a
// counter that grew, a gauge, or an address of a network namespace.
func CounterSchema() *row.Schema {
	s := &row.Schema{Tool: Counters}
	for i, c := range []row.Column{
		{ID: "time", Head: "TIME", Kind: row.Time},
		{ID: "netns", Head: "NETNS", Kind: row.Uint, Help: "network namespace; absent: the whole machine"},
		{ID: "counter", Head: "COUNTER", Kind: row.Text, Left: true, Help: "as nstat writes it"},
		{ID: "grew", Head: "GREW", Kind: row.Uint, Sum: true, Help: "by how much a counter grew"},
		{ID: "value", Head: "VALUE", Kind: row.Uint, Help: "what a gauge is now"},
		{ID: "addr", Head: "ADDR", Kind: row.Addr, Left: true, Help: "an address that the network namespace has"},
	} {
		c.Div, c.Scale = 1, 1
		s.Columns, s.Show = append(s.Columns, c), append(s.Show, i)
	}
	return s
}

// CounterRows turns the readings of a Sampler into rows.
type CounterRows struct {
	to  row.Sink
	row *row.Row
	now time.Time // of the row before: Local has no time
	err error     // of the first row that was refused
}

// NewCounterRows hands rows of a CounterSchema to a sink.
func NewCounterRows(s *row.Schema, to row.Sink) *CounterRows {
	return &CounterRows{to: to, row: s.New(), now: time.Now()}
}

// Sample reads all counters by a Sampler, and ends the batch.
func (c *CounterRows) Sample(s *Sampler, now time.Time) error {
	c.now = now
	s.Sample(c, now)
	if c.err != nil {
		return c.err
	}
	return c.to.End(row.End{Time: now, Tool: Counters})
}

// Count implements Counts.
func (c *CounterRows) Count(at time.Time, k CounterKey, by int64) {
	c.begin(at, k.Netns, k.Name)
	c.row.Get("grew").SetUint(uint64(by))
	c.send()
}

// Gauge implements Counts. Gauges are whole numbers.
func (c *CounterRows) Gauge(at time.Time, k CounterKey, value float64) {
	c.begin(at, k.Netns, k.Name)
	c.row.Get("value").SetUint(uint64(math.Round(value)))
	c.send()
}

// Local implements Counts.
func (c *CounterRows) Local(netns uint32, addrs ...netip.Addr) {
	for _, a := range addrs {
		c.begin(c.now, netns, "")
		b := a.As16()
		*c.row.Get("addr") = row.Cell{Kind: row.Addr, S: string(b[:])}
		c.send()
	}
}

func (c *CounterRows) begin(at time.Time, netns uint32, name string) {
	c.now = at
	clear(c.row.Cells)
	*c.row.Get("time") = row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
	if netns != 0 {
		c.row.Get("netns").SetUint(uint64(netns))
	}
	if name != "" {
		c.row.Get("counter").SetText(name)
	}
}

func (c *CounterRows) send() {
	if err := c.to.Row(c.row); c.err == nil {
		c.err = err
	}
}

// takeRecorded takes a row of a CounterSchema. Model.Row has counted it, and holds the lock.
func takeRecorded(m *Model, at int64, r reader) {
	k := CounterKey{uint32(r.count("netns")), r.text("counter")}
	switch {
	case r.has("grew"):
		if c := m.counters.cell(at, k); c != nil {
			*c += int64(r.count("grew"))
		}
	case r.has("value"):
		if c := m.gauges.cell(at, k); c != nil {
			*c = float64(r.count("value"))
		}
	case r.has("addr"):
		m.local(k.Netns, r.addr("addr"))
	}
}
