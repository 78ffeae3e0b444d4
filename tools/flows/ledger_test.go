// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"testing"

	"seine/internal/kern"
)

// TestLedger: a guess that turns out to be wrong is taken out of later rows. Each row adds
// up to its interval, and no part is negative. All rows together differ from the truth
// by what is left of the guess.
func TestLedger(t *testing.T) {
	l := newLedger(true)
	var prev *event
	var shown parts
	for i, now := range []parts{
		{App: 100},                             // the server seems to think
		{App: 20, Receiving: 130},              // but the request had not ended
		{App: 20, Receiving: 130, Network: 50}, // 80 less of app than was shown
		{App: 60, Receiving: 200, Network: 90}, // and at last more again
	} {
		e := event{Part: now}
		e.About.Sk, e.About.Born = 7, 1000
		e.TS = 1000
		e.TS += kern.Mono(now.sum())
		cur := e
		if !l.diff(prev, &cur) {
			t.Errorf("row %d is not shown", i)
		}
		if wall := uint64(cur.About.Born); cur.Part.sum() != wall {
			t.Errorf("row %d: parts of %d are %d: %+v", i, wall, cur.Part.sum(), cur.Part)
		}
		for p, v := range cur.Part.each() {
			if v > now.sum() {
				t.Errorf("row %d: %s is %d", i, partNames[p], int64(v))
			}
		}
		shown.add(&cur.Part)
		prev = &e
	}
	if want := (parts{App: 100, Receiving: 160, Network: 90}); shown != want {
		// 40 of the app's first 100 are never corrected, because no row
		// can have a negative part.
		t.Errorf("all rows are %+v, want %+v", shown, want)
	}
}

// TestLedgerEnd: if a connection recorded the time of its end before an output walked
// over it, its last row has no time.
func TestLedgerEnd(t *testing.T) {
	l := newLedger(false)
	at := func(ts kern.Mono) *event {
		e := &event{Part: parts{Idle: kern.Nanos(ts - 1000)}}
		e.About.Sk, e.About.Born, e.TS = 7, 1000, ts
		return e
	}
	walked, ended := at(1100), at(1090)
	ended.About.Closed = 1
	first := *walked
	if !l.diff(nil, &first) || !l.diff(walked, ended) {
		t.Error("a row is not shown")
	}
	if wall := uint64(ended.About.Born); wall != 0 || ended.Part != (parts{}) {
		t.Errorf("the last row is %d, of %+v", wall, ended.Part)
	}
}

// TestLedgerPreempted: a row includes the time between reading the clock and reading
// the parts, and the next row does not repeat it.
func TestLedgerPreempted(t *testing.T) {
	l := newLedger(false)
	at := func(ts kern.Mono, idle kern.Nanos) *event {
		e := &event{Part: parts{Idle: idle}}
		e.About.Sk, e.About.Born, e.TS = 7, 1000, ts
		return e
	}
	first, second := at(1100, 130), at(1200, 200)
	raw := *first
	for i, want := range []kern.Nanos{130, 70} {
		e, prev := []*event{first, second}[i], []*event{nil, &raw}[i]
		l.diff(prev, e)
		if e.About.Born != want || e.Part.Idle != want {
			t.Errorf("row %d is %d, of %+v, want %d", i, e.About.Born, e.Part, want)
		}
	}
}
