// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"runtime"
	"testing"

	"seine/internal/kern"
	"seine/internal/tool"
)

// rows returns a function that turns each event of a connection into its row, and says whether
// it is shown.
func rows(all bool) func(e *event) (row event, shown bool) {
	var prev *event
	make := diff(all)
	return func(e *event) (event, bool) {
		row, next := *e, *e
		shown := make(prev, &row)
		keep(prev, &row, &next)
		prev = &next
		return row, shown
	}
}

// TestDiff: a guess that turns out to be wrong is taken out of later rows. Each row adds
// up to its interval, and no part is negative. All rows together differ from the truth
// by what is left of the guess.
func TestDiff(t *testing.T) {
	next := rows(true)
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
		cur, is := next(&e)
		if !is {
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
	}
	if want := (parts{App: 100, Receiving: 160, Network: 90}); shown != want {
		// 40 of the app's first 100 are never corrected, because no row
		// can have a negative part.
		t.Errorf("all rows are %+v, want %+v", shown, want)
	}
}

// TestDiffEnd: if a connection recorded the time of its end before an output walked
// over it, its last row has no time.
func TestDiffEnd(t *testing.T) {
	next := rows(false)
	at := func(ts kern.Mono) *event {
		e := &event{Part: parts{Idle: kern.Nanos(ts - 1000)}}
		e.About.Sk, e.About.Born, e.TS = 7, 1000, ts
		return e
	}
	walked, ended := at(1100), at(1090)
	ended.About.Closed = 1
	_, first := next(walked)
	last, second := next(ended)
	if !first || !second {
		t.Error("a row is not shown")
	}
	if wall := uint64(last.About.Born); wall != 0 || last.Part != (parts{}) {
		t.Errorf("the last row is %d, of %+v", wall, last.Part)
	}
}

// TestDiffPreempted: a row includes the time between reading the clock and reading
// the parts, and the next row does not repeat it.
func TestDiffPreempted(t *testing.T) {
	next := rows(false)
	at := func(ts kern.Mono, idle kern.Nanos) *event {
		e := &event{Part: parts{Idle: idle}}
		e.About.Sk, e.About.Born, e.TS = 7, 1000, ts
		return e
	}
	first, second := at(1100, 130), at(1200, 200)
	for i, want := range []kern.Nanos{130, 70} {
		e, _ := next([]*event{first, second}[i])
		if e.About.Born != want || e.Part.Idle != want {
			t.Errorf("row %d is %d, of %+v, want %d", i, e.About.Born, e.Part, want)
		}
	}
}

// TestLostEnds: connections whose ends are lost in the ring leave nothing behind. Only the reader
// remembers them, and for a bounded time.
func TestLostEnds(t *testing.T) {
	c := newConfig().(*config)
	if err := c.SetView(connections); err != nil {
		t.Fatal(err)
	}
	walk := views(c)[0].Output.(tool.Iter[session, event])
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const conns = 100_003
	for i := range conns {
		e := event{Part: parts{Idle: 100}}
		e.About.Sk, e.About.Born, e.TS = where(i), 1000, 1100
		row := e
		walk.Diff(nil, &row)
		walk.Keep(nil, &row, &e)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if left := int64(after.HeapAlloc) - int64(before.HeapAlloc); left > 1<<20 {
		t.Errorf("%d connections that are gone take %d bytes", conns, left)
	}
	runtime.KeepAlive(walk)
}
