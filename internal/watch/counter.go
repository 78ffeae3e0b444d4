// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// CounterKey is a counter or a gauge of the kernel. Netns is 0 for those of the whole
// machine.
type CounterKey struct {
	Netns uint32
	Name  string // as nstat writes it, or a word of the Sampler
}

// Count adds the growth of a counter.
func (m *Model) Count(at time.Time, k CounterKey, by int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saw(at.Unix())
	m.source(Counters).Rows++
	if c := m.counters.cell(at.Unix(), k); c != nil {
		*c += by
	}
	if m.counted != nil {
		m.counted(k, by)
	}
}

// OnCount makes Count call do with its arguments. do must not call the model.
func (m *Model) OnCount(do func(k CounterKey, by int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted = do
}

// Gauge sets the current value of a gauge.
func (m *Model) Gauge(at time.Time, k CounterKey, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saw(at.Unix())
	m.source(Counters).Rows++
	if c := m.gauges.cell(at.Unix(), k); c != nil {
		*c = value
	}
}

// takeCounter takes the counters in rows of skbdrop, unless a Sampler reads all.
func takeCounter(m *Model, at int64, r reader) {
	if s := m.sources[Counters]; s != nil && s.Rows > 0 {
		return
	}
	if c := m.counters.cell(at, CounterKey{uint32(r.count("netns")), r.text("counter")}); c != nil {
		*c += int64(r.count("count"))
	}
}
