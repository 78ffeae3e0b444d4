// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"seine/internal/words"
)

// number formats a count in at most seven cells: 0, 0.4, 1,840, 12.3k, 1.2M.
func number(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.05:
		return "<0.1"
	case n < 9.95 && n != float64(int(n)):
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n < 99_999.5:
		return words.Thousands(uint64(n + 0.5))
	}
	for _, unit := range []string{"k", "M", "G"} {
		if n /= 1000; n < 999.5 {
			return three(n) + unit
		}
	}
	return three(n/1000) + "T"
}

// three formats a number with three significant digits.
func three(n float64) string {
	if n < 99.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// size is bytes: 0 B, 812 B, 12.4 kB, 3.1 MB.
func size(n float64) string {
	if n < 999.5 {
		return strconv.FormatFloat(n, 'f', 0, 64) + " B"
	}
	for _, unit := range []string{"kB", "MB", "GB"} {
		if n /= 1000; n < 999.5 {
			return three(n) + " " + unit
		}
	}
	return three(n/1000) + " TB"
}

// rate is bytes a second.
func rate(n float64) string { return size(n) + "/s" }

// took is a time that was measured in microseconds: 85 µs, 1.2 ms, 480 ms, 2.3 s, 12 min.
func took(us float64) string {
	switch {
	case us < 999.5:
		return strconv.FormatFloat(us, 'f', 0, 64) + " µs"
	case us < 999_500:
		return three(us/1000) + " ms"
	case us < 119.5e6:
		return three(us/1e6) + " s"
	case us < 7200e6:
		return strconv.FormatFloat(us/60e6, 'f', 0, 64) + " min"
	}
	return three(us/3600e6) + " h"
}

// ago is a whole number of seconds or minutes.
func ago(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()))
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

// width is how many cells of a terminal a text takes.
func width(s string) int { return ansi.StringWidth(s) }

// fit pads or cuts a text to a width. It cuts the end.
func fit(s string, cells int, left bool) string {
	if cells <= 0 {
		return ""
	}
	n := width(s)
	if n > cells {
		s = ansi.Truncate(s, cells, "…")
		n = width(s)
	}
	if left {
		return s + spaces(cells-n)
	}
	return spaces(cells-n) + s
}

// middle cuts the middle of a text that is too long, because the port at the end of an
// address matters more than the digits before it.
func middle(s string, cells int) string {
	n := width(s)
	if n <= cells || cells < 5 {
		return s
	}
	front := (cells - 1) / 2
	return ansi.Truncate(s, front, "") + "…" + ansi.TruncateLeft(s, n-(cells-1-front), "")
}

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }
