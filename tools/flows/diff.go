// SPDX-License-Identifier: Apache-2.0

package flows

import "seine/internal/kern"

// session identifies a connection, even if the kernel reuses the address of its
// socket.
type session struct {
	sk   uint64
	born uint64
}

func keyOf(e *event) session { return session{uint64(e.About.Sk), uint64(e.About.Born)} }

// until is when the parts of e end. It is the time of e or later: if a walk is
// preempted between reading the clock and reading the parts, the parts include the
// time in between.
func until(e *event) uint64 { return max(uint64(e.TS), uint64(e.About.Born)+e.Part.sum()) }

// diff turns the times of a connection, which count from its start, into times of an
// interval. The part at the end of an interval is a guess: the server's thinking may
// turn out to be a pause in a request. A row that has been shown cannot be corrected. So
// if a part was shown with too much time, later rows show less of it, and until then the
// excess is taken from the largest other part. Each row adds up to its interval. A wrong
// guess remains if no more time of that part comes.
//
// The parts of prev are those that were shown: see keep. With all, a connection that did
// nothing has a row too.
func diff(all bool) func(prev, cur *event) bool {
	return func(prev, cur *event) bool {
		a, p := &cur.About, &cur.Part
		since, now := uint64(a.Born), until(cur)
		moved := prev == nil || a.Closed != 0
		if prev != nil {
			was := &prev.About
			// The walk may have found the connection after it recorded the
			// time of its end.
			since = min(until(prev), now)
			moved = moved || a.TX != was.TX || a.RX != was.RX
			// Counters of bytes are read while they change, so they may
			// seem to decrease a little.
			a.TX -= min(a.TX, was.TX)
			a.RX -= min(a.RX, was.RX)
			a.Turns -= min(a.Turns, was.Turns)
			a.Overlaps -= min(a.Overlaps, was.Overlaps)
			a.Fast -= was.Fast
			a.TLP -= was.TLP
			a.RTO -= was.RTO
			a.Syn -= was.Syn
			*p = part(p, &prev.Part)
		}
		a.Born = kern.Nanos(now - since)
		return all || moved || uint64(p.Idle+p.Closing+p.Unknown) < p.sum()
	}
}

// keep makes the parts of next all that was shown of the connection until now.
func keep(prev, shown, next *event) {
	next.Part = shown.Part
	if prev != nil {
		next.Part.add(&prev.Part)
	}
}

// part is the difference of now and shown, without negative parts: time that was
// shown too much is taken from the others.
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
