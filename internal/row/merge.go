// SPDX-License-Identifier: Apache-2.0

package row

import (
	"sync"
	"time"
)

// A Merge puts the rows of several sources into the order of their time and hands them
// to one sink. Sources may be called by goroutines of their own.
//
// A row waits long enough for older rows of other sources to arrive. A row that comes later
// still is handed on at once: out of order, but not lost. Sources that bring rows at a high rate
// have to bring them almost in order: then few rows have to wait.
type Merge struct {
	next Sink
	wait time.Duration
	fail func(error)
	now  func() time.Time

	mu      sync.Mutex
	waiting waitingRows
	timer   *time.Timer // nil: nothing waits
	err     error       // of the sink; nothing is handed on after it
}

// mergeMost is how many rows wait at the most: 8,000 a second wait for 250 ms, and 100,000 a second
// for 20 ms. Each takes a kilobyte or two.
const mergeMost = 2000

// NewMerge makes a merge whose rows wait for so long. Fail is called once, when next
// returns an error, which may be that it wants no more.
func NewMerge(next Sink, wait time.Duration, fail func(error)) *Merge {
	return &Merge{next: next, wait: wait, fail: fail, now: time.Now}
}

// Source is where the rows of one source go in.
func (m *Merge) Source() Sink { return mergeSource{m} }

type mergeSource struct{ *Merge }

// Row takes a row, to be handed on when its time has come.
func (m mergeSource) Row(r *Row) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	var at time.Time
	if c := r.Get("time"); c != nil && c.Kind == Time {
		at = time.Unix(0, int64(c.N))
	} else {
		at = m.now()
	}
	m.waiting.put(r, at)
	if m.waiting.len() > mergeMost {
		m.hand()
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(m.wait, m.due)
	}
	return m.err
}

// End hands on losses, with the name of their tool. It does not hand on the ends of outputs and
// of the run: other sources may still have rows.
func (m mergeSource) End(e End) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && e.Losses != nil {
		m.set(m.next.End(End{Time: e.Time, Tool: e.Tool, Losses: e.Losses}))
	}
	return m.err
}

// due hands on the rows that have waited long enough.
func (m *Merge) due() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = nil
	old := m.now().Add(-m.wait)
	for m.waiting.len() > 0 && m.err == nil && !m.waiting.oldest().After(old) {
		m.hand()
	}
	if m.err == nil {
		m.set(m.next.End(End{Time: m.now()}))
	}
	if m.waiting.len() > 0 && m.err == nil {
		m.timer = time.AfterFunc(max(m.waiting.oldest().Sub(old), time.Millisecond), m.due)
	}
}

// hand hands on the oldest row.
func (m *Merge) hand() {
	w := m.waiting.take()
	if m.err == nil {
		m.set(m.next.Row(&w.row))
	}
	m.waiting.done(w)
}

func (m *Merge) set(err error) {
	if err != nil && m.err == nil {
		m.err = err
		m.fail(err)
	}
}

// Close hands on the rows that wait, and ends the sink. No source may be used then.
func (m *Merge) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	for m.waiting.len() > 0 {
		m.hand()
	}
	if m.err == nil {
		m.set(m.next.End(End{Time: m.now(), Output: true, Last: true}))
	}
	if m.err == Done {
		return m.next.End(End{Time: m.now(), Last: true})
	}
	return m.err
}
