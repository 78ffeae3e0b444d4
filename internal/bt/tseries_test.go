// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// TestSeries draws a series whose values are known, of two CPUs, one of which was
// behind in an interval.
func TestSeries(t *testing.T) {
	typ := &Type{Kind: TseriesOf, Depth: 5, step: 1e8, Signed: true}
	cpu := func(list ...int64) []byte {
		var b []byte
		for _, v := range list {
			b = append(b, bytes.Repeat([]byte{0}, 8)...)
			for i := range 8 {
				b[len(b)-8+i] = byte(uint64(v) >> (8 * i))
			}
		}
		return b
	}
	for _, c := range []struct {
		format string
		want   []string // values of the lines
	}{
		{"", []string{"5", "-", "-5", "2"}}, {"sum", []string{"5", "-", "-2", "2"}}, {"avg", []string{"5", "-", "0", "2"}},
		{"min", []string{"5", "-", "-5", "2"}}, {"max", []string{"5", "-", "3", "2"}},
	} {
		typ.Format = c.format
		// Intervals 6 to 10 (kept as 7 to 11) have the places 1, 2, 3, 4 and 0; 7 was not seen.
		e := &entry{nums: total(typ, [][]byte{
			cpu(11, 9, 1, 7, 5, 1, 3, 8, 1, 9, -5, 2, 10, 2, 1)[:5*seriesSlot],
			cpu(0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 3, 1, 0, 0, 0),
		})}
		e.nums[0] = 0 // the place of interval 10
		var b bytes.Buffer
		printSeries(&b, typ, e.nums, 0)
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3} .{53} (\S+)$`).FindAllStringSubmatch(b.String(), -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%q: got %q, want %q\n%s", c.format, got, c.want, b.String())
		}
	}
	typ.Format = ""
	var b bytes.Buffer
	printSeries(&b, typ, total(typ, [][]byte{cpu(0, 0, 0, 7, -5, 1, 8, -4, 1, 9, 0, 1, 10, 5, 1)}), 0)
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{
		"             -5                                                  5",
		"hh:mm:ss.ms  |___________________________________________________|",
		"*                         .                         | -5",
		"|    *                    .                         | -4",
		"|                         *                         | 0",
		"|                         .                         * 5",
		"             v___________________________________________________v",
		"             -5                                                  5",
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}
