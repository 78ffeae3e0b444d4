// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A figure is one measurement, taken once a round, beside the same measurement
// of something else.
type figure struct {
	What   string
	Unit   string
	Own    []float64
	Beside string    // what it is compared with; empty: nothing
	Other  []float64 // its measure, in the same rounds
	Goal   *goal
	Note   string
}

// A goal is a bound of the figure or of its ratio to the other.
type goal struct {
	Bound float64
	Least bool // the bound is the least it should be; else the most
	Ratio bool // of the ratio
	Best  bool // of the best round: for wall-clock measurements
}

var head = []string{"what", "median", "spread", "beside", "its median", "ratio", "goal", "met"}

func (f figure) cells() []string {
	c := []string{f.What, number(median(f.Own)) + " " + f.Unit, "", f.Beside, "", "", "", ""}
	if len(f.Own) == 0 {
		c[1] = "-"
		c[7] = f.Note
		return c
	}
	c[2] = number(slices.Min(f.Own)) + " – " + number(slices.Max(f.Own))
	if len(f.Other) > 0 {
		c[4] = number(median(f.Other)) + " " + f.Unit
		if slices.Max(f.Other) > 0 {
			c[5] = number(f.ratio())
		}
	}
	if f.Goal != nil {
		c[6], c[7] = f.goal()
	}
	if f.Note != "" {
		c[7] = strings.TrimSpace(c[7] + " " + f.Note)
	}
	return c
}

// ratio is the median of the rounds' ratios.
func (f figure) ratio() float64 {
	var r []float64
	for i := range min(len(f.Own), len(f.Other)) {
		if f.Other[i] > 0 {
			r = append(r, f.Own[i]/f.Other[i])
		}
	}
	return median(r)
}

func (f figure) goal() (text, met string) {
	g := f.Goal
	v, unit := median(f.Own), " "+f.Unit
	switch {
	case g.Ratio && len(f.Other) == 0:
		return "", ""
	case g.Ratio && g.Best:
		v, unit = slices.Min(f.Own)/slices.Min(f.Other), "×, best"
	case g.Ratio:
		v, unit = f.ratio(), "×"
	case g.Best:
		v, unit = slices.Min(f.Own), unit+", best"
	}
	text, ok := "≤ ", v <= g.Bound
	if g.Least {
		text, ok = "≥ ", v >= g.Bound
	}
	met = "no"
	if ok {
		met = "yes"
	}
	return text + number(g.Bound) + unit, met
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// number writes three significant digits, with separators of thousands.
func number(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// align writes rows in columns: words to the left, numbers to the right.
func align(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i == 0 || i == 3 || i >= 6 {
				b.WriteString(c + pad + "  ")
			} else {
				b.WriteString(pad + c + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
