// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"time"

	"seine/internal/kern"
)

// memory is the result of earlier walks. It replaces timestamps that TCP does not keep:
// later data refresh the timestamp of the first ones, and a buffer may have taken long to
// fill. After a keepalive probe the timestamps may not show whether a request was
// answered. Then a request that hung before the probe still hangs if nothing has come
// since.
type memory struct {
	at    kern.Mono // of the last walk
	hangs map[key]past
	lone  map[uint64]lone
}

// past is an operation that hung at the last walk.
type past struct {
	since          kern.Mono
	sent, received uint32
}

// lone is a connection whose client sent again without an answer, although it had
// waited. So the client does not expect an answer.
type lone struct {
	kern.Tuple
	seen kern.Mono
}

const (
	// waited is how long a client that expects an answer waits at least.
	waited = time.Second
	// loneFor is how long a lone connection is remembered after it was last
	// seen waiting.
	loneFor = time.Hour
)

// take corrects the ages of the operations that hang now, and remembers them.
func (m *memory) take(all []*hang) { m.takeAt(all, kern.MonoNow()) }

func (m *memory) takeAt(all []*hang, at kern.Mono) {
	now := make(map[key]past, len(all))
	if m.lone == nil {
		m.lone = map[uint64]lone{}
	}
	for _, h := range all {
		p := past{h.TS - min(kern.Mono(h.Age), h.TS), h.Sent, h.Received}
		before, was := m.hangs[keyOf(h)]
		switch {
		case h.Unsure && (!was || before.sent != p.sent || before.received != p.received):
			h.Hidden = true // it did not hang while the timestamps could show it
			continue
		case h.What == unread && was && before.received == p.received:
			p.since = min(p.since, before.since)
		case h.What == blocked && was:
			p.since = max(p.since, before.since)
		case h.What == blocked && m.at != 0:
			p.since = max(p.since, m.at) // there was room then
		case h.What == request && was && before.received == p.received && before.sent != p.sent && time.Duration(m.at-before.since) >= waited:
			m.lone[h.Sk] = lone{h.Tuple, at}
		}
		h.Age = kern.Nanos(h.TS - p.since)
		now[keyOf(h)] = p
	}
	for sk, l := range m.lone {
		if time.Duration(at-l.seen) > loneFor {
			delete(m.lone, sk)
		}
	}
	m.at, m.hangs = at, now
}

// oneWay reports whether h is a request whose client expects no answer.
func (m *memory) oneWay(h *hang) bool {
	l, ok := m.lone[h.Sk]
	l.Sock = h.Sock // its cookie may have been assigned meanwhile
	if !ok || h.What != request || l.Tuple != h.Tuple {
		return false
	}
	l.seen = m.at
	m.lone[h.Sk] = l
	return true
}
