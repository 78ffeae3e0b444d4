// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// parseFolded reads a line as strictly as any flame graph program does: frames
// that are not empty and hold no blanks, separated by single semicolons; one
// blank; a number that is not 0.
func parseFolded(line string) (frames []string, count uint64, err error) {
	stack, number, ok := strings.Cut(line, " ")
	if !ok {
		return nil, 0, fmt.Errorf("no number in %q", line)
	}
	count, err = strconv.ParseUint(number, 10, 64)
	if err != nil || count == 0 || strconv.FormatUint(count, 10) != number {
		return nil, 0, fmt.Errorf("%q is no number of samples in %q", number, line)
	}
	for f := range strings.SplitSeq(stack, ";") {
		if f == "" || strings.ContainsFunc(f, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }) {
			return nil, 0, fmt.Errorf("frame %q in %q", f, line)
		}
		frames = append(frames, f)
	}
	return frames, count, nil
}

// TestFolded: what -o folded writes is what flame graph programs read, hostile
// names included, and says the same as the other formats.
func TestFolded(t *testing.T) {
	f, err := os.Open("testdata/folded.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total uint64
	roots := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		frames, n, err := parseFolded(s.Text())
		if err != nil {
			t.Fatal(err)
		}
		total += n
		roots[frames[0]] = len(frames)
	}
	if total != 373+1+12+3+740 {
		t.Errorf("%d samples in all, want %d", total, 373+1+12+3+740)
	}
	for root, want := range map[string]int{"iperf3": 8, "a_b:c": 4, "swapper/1": 4, "lost": 1} {
		if roots[root] != want {
			t.Errorf("%s has %d frames, want %d", root, roots[root], want)
		}
	}
	for _, line := range []string{"", "a", "a;b", "a;;b 1", "a 0", "a 01", "a  1", "a b 1", ";a 1", "a; 1", "a -1", "a 1 "} {
		if _, _, err := parseFolded(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}
