// SPDX-License-Identifier: Apache-2.0

package tool

import "testing"

// TestIterLost: a thing whose end is lost in the ring is never shown as one that ended, and is
// forgotten after awayTicks, with all that is kept of it. A thing that is walked over again before
// that counts on.
func TestIterLost(t *testing.T) {
	type thing struct{ key, count, kept, ended int }
	var rows []thing
	r := &iterReader[int, thing]{Iter: Iter[int, thing]{
		Key: func(x *thing) int { return x.key },
		Diff: func(prev, cur *thing) bool {
			if prev != nil {
				cur.count -= prev.count
				cur.kept = prev.kept
			}
			return true
		},
		Keep: func(_, shown, next *thing) { next.kept = shown.kept + 1 },
	}}
	r.moved = func(x *thing) error { rows = append(rows, *x); return nil }
	r.away = map[int]int{}
	r.prev.reset()
	tick := func(walked ...thing) {
		rows = nil
		r.now.reset()
		for _, x := range walked {
			r.now.put(x.key, &x)
		}
		if err := r.changes(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, all ...thing) {
		t.Helper()
		if len(rows) != len(all) {
			t.Fatalf("%s: rows %+v, want %+v", when, rows, all)
		}
		for i := range all {
			if rows[i] != all[i] {
				t.Fatalf("%s: rows %+v, want %+v", when, rows, all)
			}
		}
	}
	const conns = 101
	var all []thing
	for i := range conns {
		all = append(all, thing{key: i, count: 10})
	}
	tick(all...)
	tick() // all ends were lost
	want("ends were lost")
	tick(thing{key: 7, count: 13})
	want("one is there again", thing{key: 7, count: 3, kept: 1})
	r.ended = append(r.ended, thing{key: 7, count: 15, ended: 1})
	tick()
	want("it has ended", thing{key: 7, count: 2, kept: 2, ended: 1})
	for range awayTicks - 3 {
		tick()
		want("nothing is there")
	}
	if len(r.prev.at) != conns-1 || len(r.away) != conns-1 {
		t.Errorf("%d things and %d that are away, want %d", len(r.prev.at), len(r.away), conns-1)
	}
	tick()
	if len(r.prev.at) != 0 || len(r.away) != 0 {
		t.Errorf("%d things and %d that are away are never forgotten", len(r.prev.at), len(r.away))
	}
	tick(thing{key: 8, count: 5})
	want("a new one has the key of one that was forgotten", thing{key: 8, count: 5})
}
