// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"container/list"
	"time"
)

// A Moment is a second of a connection.
type Moment struct {
	At      int64 // second
	Turns   uint64
	TX, RX  uint64 // bytes
	Retrans uint64 // segments
	SRTT    uint64 // microseconds
	Parts   Parts
}

// mostFollowed is how many connections have a history. A screen shows fewer.
const mostFollowed = 256

// followed holds the histories of the connections that a user looks at. Keeping one for each
// of 100,000 connections would take more memory than all the rest.
type followed struct {
	keep  int64 // seconds
	by    map[ConnKey]*list.Element
	order *list.List // the one that was followed last is in front
}

type history struct {
	key     ConnKey
	moments []Moment
}

// Follow makes the model keep the seconds of these connections from now on. The connections
// that were followed longest ago are evicted.
func (m *Model) Follow(keys ...ConnKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.followed
	if f.by == nil {
		f.by, f.order = map[ConnKey]*list.Element{}, list.New()
	}
	for _, k := range keys {
		if e := f.by[k]; e != nil {
			f.order.MoveToFront(e)
			continue
		}
		h := &history{key: k}
		if c := m.conns.by[k]; c != nil {
			shown := c.show()
			h.add(&shown, m.followed.keep)
		}
		f.by[k] = f.order.PushFront(h)
		if f.order.Len() > mostFollowed {
			last := f.order.Back()
			delete(f.by, last.Value.(*history).key)
			f.order.Remove(last)
		}
	}
}

// History returns the seconds of a followed connection in order of time, up to and including
// to. Seconds without traffic are left out.
func (m *Model) History(k ConnKey, to time.Time) (out []Moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.followed.by[k]
	if e == nil {
		return nil
	}
	for _, moment := range e.Value.(*history).moments {
		if moment.At <= to.Unix() {
			out = append(out, moment)
		}
	}
	return out
}

// saw adds a row of a connection, if it is followed.
func (f *followed) saw(c *Conn) {
	if e := f.by[c.ConnKey]; e != nil {
		e.Value.(*history).add(c, f.keep)
	}
}

func (h *history) add(c *Conn, keep int64) {
	next := Moment{At: c.Last, Turns: c.Turns, TX: c.TX, RX: c.RX, Retrans: c.Fast + c.TLP + c.RTO, SRTT: c.SRTT, Parts: c.Parts}
	if n := len(h.moments); n > 0 && h.moments[n-1].At >= c.Last { // a second row of the same second
		last := &h.moments[n-1]
		last.Turns += next.Turns
		last.TX += next.TX
		last.RX += next.RX
		last.Retrans += next.Retrans
		last.SRTT = next.SRTT
		for i, v := range next.Parts {
			last.Parts[i] += v
		}
		return
	}
	h.moments = append(h.moments, next)
	for len(h.moments) > 0 && h.moments[0].At <= c.Last-keep {
		h.moments = h.moments[1:]
	}
}

// At is the window that ends with the second of to.
func (m *Model) At(to time.Time, last time.Duration) *View {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := min(to.Unix(), m.last)
	return m.view(max(end-int64(last.Seconds())+1, m.first), end)
}

// Span is the first and the last second of the model; zero: it has none.
func (m *Model) Span() (first, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == 0 {
		return time.Time{}, time.Time{}
	}
	return time.Unix(m.first, 0), time.Unix(m.last, 0)
}

// Compare orders services by process, side, port and address.
func (k ServiceKey) Compare(o ServiceKey) int { return k.compare(o) }
