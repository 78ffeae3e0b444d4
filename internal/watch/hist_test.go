// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"math/rand/v2"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/row/rowtest"
)

// TestHist: histograms without empty slots add up to the same as those with all slots.
func TestHist(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var want, got kern.Hist
		var sum Hist
		for range r.IntN(5) {
			var part Hist
			for range r.IntN(8) {
				v := r.Uint64N(1 << r.IntN(45))
				want.Add(v)
				part.add(v)
			}
			whole := part
			sum.join(&part)
			if part.Count != whole.Count || len(part.slots) != len(whole.slots) {
				t.Error("what was added has changed")
			}
		}
		sum.AddTo(&got)
		if got != want {
			t.Fatalf("%d values from %d to %d, sum %d, want %d from %d to %d, sum %d", got.Count, got.Min, got.Max, got.Sum, want.Count, want.Min, want.Max, want.Sum)
		}
		if a, b := sum.Quantile(0.9), want.Quantile(0.9); a != b {
			t.Errorf("90 %% are below %g, want %g", a, b)
		}
		if again := NewHist(&want); again.Count != sum.Count || len(again.slots) != len(sum.slots) {
			t.Errorf("%d slots, want %d", len(again.slots), len(sum.slots))
		}
	}
}

// TestViewRoom: a view of many services and tallies takes a few hundred bytes for each.
func TestViewRoom(t *testing.T) {
	m := New(Options{})
	const n = 5000
	for i := range n {
		m.Row(rowtest.At(serviceRows, start, map[string]any{"side": "in", "comm": "web", "netns": 7, "lport": i + 1, "conns": 1, "turns": 1, "turn_us": turns(uint64(i))}))
	}
	before := heap()
	v := m.Window(time.Second)
	took := heap() - before
	if len(v.Services) != n || v.Services[n-1].Turn.Max != n-1 {
		t.Fatalf("%d services, the last took %d us", len(v.Services), v.Services[n-1].Turn.Max)
	}
	t.Logf("%d bytes for each service", took/n)
	if took/n > 600 { // two histograms with all slots would take 5,000
		t.Errorf("%d bytes for each service", took/n)
	}
}
