// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"testing"
	"time"
)

// TestAround: a cursor deep in a list shows the same rows whether they are found from the row
// under it or by counting from the first one.
func TestAround(t *testing.T) {
	snap := Take(big(3000), time.Time{}, false)
	each := func(do func(*conn)) { snap.connections(nil, do) }
	const lines = 21
	for _, q := range []query{
		{},
		{sort: "turns"}, // hundreds are equal
		{sort: "process", reverse: true},
		{where: "turns < 3"},
	} {
		all, err := connections().pick(each, &q, 0)
		if err != nil || all.matched < 1000 {
			t.Fatalf("%d rows, %v", all.matched, err)
		}
		matched := all.matched
		for _, at := range []int{0, 5, 19, 20, 21, 22, 40, matched / 2, matched - 21, matched - 2, matched - 1} {
			for _, top := range []int{at, at - 7, at - 19} {
				counted := q
				counted.at, counted.top, counted.pinned = at, max(top, 0), true
				want := connections().pane(each, counted, 200, lines, Look{})
				found := counted
				found.cursor = want.cursor
				found.at += 3 // where it was before others went
				got := connections().pane(each, found, 200, lines, Look{})
				if got.at != at || got.top != want.top || got.matched != matched || !slices.Equal(got.lines, want.lines) {
					t.Errorf("%+v at %d of %d: the row is found at %d, top %d instead of %d", q, at, matched, got.at, got.top, want.top)
				}
			}
		}
	}
	gone := query{at: 100, top: 90, pinned: true, cursor: "no such row"}
	if p := connections().pane(each, gone, 200, lines, Look{}); p.at != 100 || p.top != 90 || len(p.lines) != lines {
		t.Errorf("a row that has gone leaves the cursor at %d, top %d, with %d lines", p.at, p.top, len(p.lines))
	}
}
