// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestFigure(t *testing.T) {
	own, other := []float64{30, 10, 20}, []float64{40, 40, 80}
	for _, c := range []struct {
		name string
		f    figure
		want []string
	}{
		{"alone", figure{What: "x", Unit: "ms", Own: own},
			[]string{"x", "20.0 ms", "10.0 – 30.0", "", "", "", "", ""}},
		{"the ratio is that of each round", figure{Unit: "ns", Own: own, Beside: "y", Other: other, Goal: &goal{Bound: 0.5, Ratio: true}},
			[]string{"", "20.0 ns", "10.0 – 30.0", "y", "40.0 ns", "0.25", "≤ 0.50×", "yes"}},
		{"no ratio without the other", figure{Unit: "ns", Own: own, Goal: &goal{Bound: 0.5, Ratio: true}},
			[]string{"", "20.0 ns", "10.0 – 30.0", "", "", "", "", ""}},
		{"the median misses", figure{Unit: "ms", Own: own, Goal: &goal{Bound: 15}},
			[]string{"", "20.0 ms", "10.0 – 30.0", "", "", "", "≤ 15.0 ms", "no"}},
		{"the best meets", figure{Unit: "ms", Own: own, Goal: &goal{Bound: 15, Best: true}},
			[]string{"", "20.0 ms", "10.0 – 30.0", "", "", "", "≤ 15.0 ms, best", "yes"}},
		{"the best of both", figure{Unit: "ms", Own: own, Beside: "y", Other: []float64{100, 50, 60}, Goal: &goal{Bound: 0.2, Ratio: true, Best: true}},
			[]string{"", "20.0 ms", "10.0 – 30.0", "y", "60.0 ms", "0.30", "≤ 0.20×, best", "yes"}},
		{"at least", figure{Unit: "rows/s", Own: []float64{1234567}, Goal: &goal{Bound: 500000, Least: true}},
			[]string{"", "1,234,567 rows/s", "1,234,567 – 1,234,567", "", "", "", "≥ 500,000 rows/s", "yes"}},
		{"no ratio to nothing", figure{Unit: "ns", Own: own, Beside: "y", Other: []float64{0, 0, 0}},
			[]string{"", "20.0 ns", "10.0 – 30.0", "y", "0.00 ns", "", "", ""}},
		{"not measured", figure{What: "x", Note: "why"},
			[]string{"x", "-", "", "", "", "", "", "why"}},
	} {
		if got := c.f.cells(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
