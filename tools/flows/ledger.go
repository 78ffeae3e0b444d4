// SPDX-License-Identifier: Apache-2.0

package flows

import "seine/internal/kern"

// session tells one connection from another, also when its memory is used again.
type session struct {
	sk   uint64
	born uint64
}

func keyOf(e *event) session { return session{uint64(e.About.Sk), uint64(e.About.Born)} }

// A ledger turns connections, whose times run since their beginning, into what
// happened in an interval. What a connection does at the end of an interval is a guess:
// what seems to be the server's thinking may turn out to be a pause in a request. A row
// that has been shown stays as it is. So what was shown too much of a part is not shown
// when more of it comes, and meanwhile it is taken from the largest other part. Each row
// adds up to its interval. A guess about a part of which no more comes stays.
type ledger struct {
	all   bool              // what did nothing too
	shown map[session]parts // so far
}

func newLedger(all bool) *ledger { return &ledger{all, map[session]parts{}} }

// until is when the parts of e end. It is the time of e, or later: a walk over the
// connections that was preempted between reading the clock and reading the parts finds
// in them what happened meanwhile.
func until(e *event) uint64 { return max(uint64(e.TS), uint64(e.About.Born)+e.Part.sum()) }

func (l *ledger) diff(prev, cur *event) bool {
	key, a := keyOf(cur), &cur.About
	since, now := uint64(a.Born), until(cur)
	moved := prev == nil || a.Closed != 0
	if prev != nil {
		was := &prev.About
		// It may have been walked over after it took the time of its end.
		since = min(until(prev), now)
		moved = moved || a.TX != was.TX || a.RX != was.RX
		// Bytes are read while they move: they may seem to go back a bit.
		a.TX -= min(a.TX, was.TX)
		a.RX -= min(a.RX, was.RX)
		a.Turns -= min(a.Turns, was.Turns)
		a.Overlaps -= min(a.Overlaps, was.Overlaps)
		a.Fast -= was.Fast
		a.TLP -= was.TLP
		a.RTO -= was.RTO
		a.Syn -= was.Syn
	}
	shown := l.shown[key]
	cur.Part = part(&cur.Part, &shown)
	shown.add(&cur.Part)
	if l.shown[key] = shown; a.Closed != 0 {
		delete(l.shown, key)
	}
	a.Born = kern.Nanos(now - since)
	p := &cur.Part
	return l.all || moved || uint64(p.Idle+p.Closing+p.Unknown) < p.sum()
}

// part is what now is more than shown, where no part can be less than nothing: what
// was shown too much is taken from the others.
func part(now, shown *parts) (out parts) {
	var over uint64
	o := out.each()
	for i, v := range now.each() {
		if was := shown.each()[i]; v >= was {
			o[i] = v - was
		} else {
			over += was - v
		}
	}
	for over > 0 {
		most := 0
		for i := range o {
			if o[i] > o[most] {
				most = i
			}
		}
		cut := min(over, o[most])
		if cut == 0 {
			break
		}
		o[most] -= cut
		over -= cut
	}
	return out
}
