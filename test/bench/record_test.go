// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

const document = `# Benchmarks

Words.

### Linux 6.18

Measured on 2020-01-01 by somebody.

More words.

| what | median | spread | beside | its median | ratio | goal | met |
|---|---|---|---|---|---|---|---|
| a: start-up | 9 ms | 9 – 9 | x | 9 ms | 1 |  |  |
| b: start-up | 8 ms | 8 – 8 | x | 9 ms | 1 |  |  |

### Linux 6.18, in a guest

| what |
|---|
| kept |
`

// TestRecord: figures go into the table of their machine, and everything else
// stays.
func TestRecord(t *testing.T) {
	m := &machine{Title: "Linux 6.18", Stamp: stampMark + "today.", Figures: []figure{
		{What: "a: start-up", Unit: "ms", Own: []float64{1}, Beside: "x", Other: []float64{2}},
		{What: "a: start-up", Unit: "ms", Own: []float64{1}, Beside: "y", Other: []float64{4}},
	}}
	a, y, b := "| a: start-up | 1.00 ms | 1.00 – 1.00 | x | 2.00 ms | 0.50 |  |  |\n", "| a: start-up | 1.00 ms | 1.00 – 1.00 | y | 4.00 ms | 0.25 |  |  |\n", "| b: start-up | 8 ms | 8 – 8 | x | 9 ms | 1 |  |  |\n"
	top, rest, _ := strings.Cut(document, "Measured on 2020-01-01 by somebody.\n")
	words, _, _ := strings.Cut(rest, "| a:")
	_, other, _ := strings.Cut(rest, b)
	for whole, rows := range map[bool]string{true: a + y, false: a + b + y} {
		want := top + stampMark + "today.\n" + words + rows + other
		got := string(m.record([]byte(document), whole))
		if got != want {
			t.Errorf("whole %v: got\n%s\nwant\n%s", whole, got, want)
		}
		if again := string(m.record([]byte(got), whole)); again != got {
			t.Errorf("whole %v: the second time it became\n%s\nfrom\n%s", whole, again, got)
		}
	}
	m.Title = "Linux 7"
	if got := string(m.record([]byte(document), true)); !strings.HasPrefix(got, document+"\n### Linux 7\n\nMeasured on today.\n\n| what |") {
		t.Errorf("another machine: %s", got)
	}
}
