// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
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
		if f == "" || !utf8.ValidString(f) || strings.ContainsFunc(f, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return nil, 0, fmt.Errorf("frame %q in %q", f, line)
		}
		frames = append(frames, f)
	}
	return frames, count, nil
}

// TestFoldedGolden: flame graph programs can read -o folded, hostile names included,
// and it has the same data as the other formats.
func TestFoldedGolden(t *testing.T) {
	f, err := os.Open("../../tools/profile/testdata/folded.golden")
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
	for _, line := range []string{"", "a", "a;b", "a;;b 1", "a 0", "a 01", "a  1", "a b 1", ";a 1", "a; 1", "a -1", "a 1 ", "\xff 1"} {
		if _, _, err := parseFolded(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
	if _, _, err := parseFolded("\uFFFDbad;a 1"); err != nil {
		t.Errorf("a name that was not UTF-8 and is now: %v", err)
	}
}

// TestProfile: a flame graph of a bulk transfer, and its layers, each of which is
// one row.
func TestProfile(t *testing.T) {
	t.Parallel()
	var through uint64
	for line := range strings.Lines(run(t, "demo", "profile", "-F", "499", "--net", "--folded")) {
		frames, n, err := parseFolded(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if frames[0] == "receiver" && strings.Contains(line, ";main.main;") && strings.Contains(line, ";tcp_recvmsg;") {
			through += n
		}
	}
	if through < 50 {
		t.Errorf("%d samples of the receiver lead from main to tcp_recvmsg, want 50 or more", through)
	}
	layers := map[string]uint64{}
	for line := range strings.Lines(run(t, "demo", "profile", "-F", "499", "--net", "-o", "json")) {
		var r struct {
			Layer string
			Count uint64
			MS    float64 `json:"cpu_ms"`
			// Two stacks may need the same slot of the kernel's
			// map, which is reported.
			Losses map[string]uint64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Losses != nil && r.Layer == "" {
			continue
		}
		if r.Layer == "" || layers[r.Layer] > 0 || r.Count == 0 {
			t.Errorf("a row without a layer, or a second one of it: %s", line)
		}
		if want := float64(r.Count) * 1000 / 499; r.MS < want*0.99 || r.MS > want*1.01 {
			t.Errorf("%d samples are %.1f ms, want %.1f", r.Count, r.MS, want)
		}
		layers[r.Layer] = r.Count
	}
	if layers["tcp"] < 100 || layers["socket"] == 0 || layers["ip"] == 0 {
		t.Errorf("layers of a bulk transfer: %v", layers)
	}
}
