// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestRepeat: the first event of each key is a row at once, then there is one a second; an
// output shows what waits. Nothing is counted twice or left out.
func TestRepeat(t *testing.T) {
	type event struct {
		key string
		n   int
	}
	r := repeats[event]{Repeat: Repeat[event]{
		Key: func(e *event) any { return e.key },
		Add: func(next, before *event) { next.n += before.n },
	}, held: map[any]*repeated[event]{}}
	var got []string
	show := func(e *event) error { got = append(got, fmt.Sprint(e.key, e.n)); return nil }
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	come := func(ms int, key string, n int) {
		if e := (event{key, n}); r.take(&e, at(ms)) {
			_ = show(&e)
		}
	}
	want := func(rows ...string) {
		t.Helper()
		if !slices.Equal(got, rows) {
			t.Errorf("got %v, want %v", got, rows)
		}
		got = nil
	}
	come(0, "a", 1)
	come(0, "b", 1)
	want("a1", "b1")
	come(1, "a", 1)
	come(2, "a", 3)
	come(900, "a", 1)
	_ = r.due(at(999), false, show)
	want()
	_ = r.due(at(1000), false, show)
	want("a5")
	if len(r.held) != 1 {
		t.Errorf("%d are held, want only what comes again", len(r.held))
	}
	come(1100, "a", 1)
	come(1100, "b", 7)
	want("b7")
	_ = r.due(at(1200), true, show)
	want("a1")
	come(1300, "a", 1)
	come(1300, "b", 1)
	_ = r.due(at(2100), false, show)
	want("b1")
	_ = r.due(at(2200), false, show)
	want("a1")
	_ = r.due(at(9000), false, show)
	want()
	if len(r.held) != 0 || len(r.order) != 0 {
		t.Errorf("%d are held, %d in order, want none", len(r.held), len(r.order))
	}
}

// TestRepeatOrder: sums are shown in the order in which their keys came, and a key that was forgotten
// comes last.
func TestRepeatOrder(t *testing.T) {
	r := repeats[int]{Repeat: Repeat[int]{
		Key: func(n *int) any { return *n },
		Add: func(*int, *int) {},
	}, held: map[any]*repeated[int]{}}
	var got []int
	show := func(n *int) error { got = append(got, *n); return nil }
	start := time.Now()
	var want []int
	for n := range 100 {
		n = n * 37 % 100
		if want = append(want, n); !r.take(&n, start) || r.take(&n, start) {
			t.Fatalf("%d: the first is shown, the second waits", n)
		}
	}
	_ = r.due(start.Add(time.Second), false, show)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	again := start.Add(time.Second)
	for _, n := range want[1:] { // all but the first come again
		r.take(&n, again)
	}
	_ = r.due(again.Add(time.Second), false, func(*int) error { return nil })
	for range 2 {
		for _, n := range want {
			r.take(&n, again.Add(time.Second))
		}
	}
	got = nil
	_ = r.due(again.Add(time.Second), true, show)
	if first := append(slices.Clone(want[1:]), want[0]); !slices.Equal(got, first) {
		t.Errorf("got %v, want %v", got, first)
	}
}
