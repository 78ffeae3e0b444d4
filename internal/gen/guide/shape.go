// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// compare returns the lines that the page shows and the output lacks, and the lines
// that are new. Lines are compared by their shape, whatever their order and number. An
// output of which the page shows a part may have more.
func (b *block) compare(out []string) (gone, come []string) {
	had, has := b.shapes(b.output), b.shapes(out)
	for _, l := range slices.Sorted(maps.Keys(had)) {
		if !has[l] {
			gone = append(gone, l)
		}
	}
	if !b.part() && !b.vary || len(b.output) == 0 {
		for _, l := range slices.Sorted(maps.Keys(has)) {
			if !had[l] {
				come = append(come, l)
			}
		}
	}
	return gone, come
}

// shapes is the set of the shapes of lines. A cell keeps its figure if the mark names
// its column.
func (b *block) shapes(lines []string) map[string]bool {
	set := map[string]bool{}
	var header []string
	for _, l := range lines {
		fields := strings.Fields(l)
		if len(fields) == 0 || l == cutOff {
			continue
		}
		if len(b.exact) > 0 && !slices.ContainsFunc(b.exact, func(c string) bool { return !slices.Contains(fields, c) }) {
			header = fields
		}
		s := shape(l)
		if len(fields) == len(header) && fields[0] != "seine:" {
			cells := make([]string, len(fields))
			for i, f := range fields {
				cells[i] = f
				if !slices.Contains(b.exact, header[i]) {
					cells[i] = shape(f)
				}
			}
			s = strings.Join(cells, " ")
		}
		set[s] = true
	}
	return set
}

// token is what shape looks at: the bar of a histogram, an address, a well-known port,
// a time, a word, a number with its unit, a number of JSON. The first that matches counts.
var token = regexp.MustCompile(`(\|[@ ]*\|)` +
	`|((?:\d+\.){3}\d+|[0-9a-f:]+::[0-9a-f]*|::[0-9a-f]+)` +
	`|(:\d{1,4}\b)` +
	`|(\d{4}-\d\d-\d\dT[\d:.]+Z?|\b\d\d:\d\d:\d\d(?:\.\d+)?)` +
	`|([A-Za-z_]\w*)` +
	`|(0x[0-9a-f]+|\d+(?:,\d{3})*(?:\.\d+)?[A-Za-zµ]*)` +
	`|(":\d[\d.]*)`)

// shape is a line without the figures that differ from run to run: times, process ids,
// chosen ports, latencies, counts. Addresses and ports below 10000 stay.
func shape(line string) string {
	line = token.ReplaceAllStringFunc(line, func(s string) string {
		m := token.FindStringSubmatch(s)
		switch {
		case m[1] != "":
			return "|@|"
		case m[4] != "":
			return "T"
		case m[6] != "":
			return "N"
		case m[7] != "":
			return `":N`
		}
		return s
	})
	fields := strings.Fields(line)
	for i, f := range fields {
		if f == "-" { // a cell without a value
			fields[i] = "N"
		}
	}
	return strings.Join(fields, " ")
}
