// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"seine/internal/row"
	"seine/test/golden"
)

// recordWith records the golden rows of a tool that is run with flags.
func recordWith(t *testing.T, dir, name string, flags ...string) {
	t.Helper()
	live, err := newCommand(find1(t, name), flags)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(s []*row.Schema) ([]*row.Row, error) { return golden.Rows("../../tools", name, s) }
	if err := live.live(dir, rows, func(int, int) *row.End { return nil }); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func jsonRows(t *testing.T, text string) (out []map[string]any) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, o)
	}
	return out
}

// TestOther: tcplife over a recording that has flows --closed and no rows of tcplife.
func TestOther(t *testing.T) {
	dir := t.TempDir()
	recordWith(t, dir, "flows", "--closed")
	text, _, err := over(t, "flows", "--closed", "--from", dir, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	flows := jsonRows(t, text)
	text, said, err := over(t, "tcplife", "--from", dir, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	life := jsonRows(t, text)
	if len(life) != len(flows) || len(life) < 2 {
		t.Fatalf("%d rows of tcplife, %d of flows", len(life), len(flows))
	}
	older := 0
	for i, f := range flows {
		l := life[i]
		if l["tool"] != "tcplife" {
			t.Errorf("a row of %v", l["tool"])
		}
		for _, id := range []string{"time", "pid", "comm", "laddr", "lport", "raddr", "rport", "tx_bytes", "rx_bytes", "srtt_us", "netns", "sock"} {
			if l[id] != f[id] {
				t.Errorf("row %d: %s is %v, and %v in flows", i, id, l[id], f[id])
			}
		}
		want := f["wall_ms"]
		if l["seen_ms"] != want || want == nil {
			t.Errorf("row %d: seen_ms is %v, want %v", i, l["seen_ms"], want)
		}
		if f["older"] != nil {
			older++
			want = nil
		}
		if l["duration_ms"] != want {
			t.Errorf("row %d: duration_ms is %v, want %v", i, l["duration_ms"], want)
		}
		for _, id := range []string{"end", "retrans", "cong", "unsent_bytes"} {
			if l[id] != nil {
				t.Errorf("row %d: %s is %v, which flows does not tell", i, id, l[id])
			}
		}
	}
	if older == 0 || older == len(flows) {
		t.Errorf("%d of %d connections are older: nothing was tested", older, len(flows))
	}
	if !strings.Contains(said, "answered by rows of flows --closed, which lack") || !strings.Contains(said, "'seine record tcplife --dir DIR' would have recorded these too") {
		t.Errorf("said %q", said)
	}
	// A table has no column in which nothing would look like an orderly end, and sums no zeros.
	table, _, err := over(t, "tcplife", "--from", dir)
	if err != nil || strings.Contains(table, "END") || !strings.Contains(table, "TX_KB") {
		t.Errorf("%v: %s", err, table)
	}
	by, _, err := over(t, "tcplife", "--from", dir, "--by", "comm", "-o", "json")
	if err != nil || strings.Contains(by, "retrans") || !strings.Contains(by, "tx_bytes") {
		t.Errorf("%v: %s", err, by)
	}
	for _, flags := range [][]string{
		{"--where", `end == "refused"`}, {"--by", "comm,end"}, {"--columns", "+retrans"}, {"--by", "comm", "--sort", "retrans"},
	} {
		_, _, err := over(t, append([]string{"tcplife", "--from", dir}, flags...)...)
		if err == nil || !strings.Contains(err.Error(), "'seine record tcplife --dir DIR' would have recorded it") || code(err) != 2 {
			t.Errorf("%v: %v, want it refused with what would have recorded it", flags, err)
		}
	}
	if _, _, err := over(t, "tcplife", "--from", dir, "--where", `comm != "end"`); err != nil {
		t.Error(err)
	}
	one, _, err := over(t, "tcplife", "--from", dir, "-o", "json", "--lport", "1")
	if err != nil || one != "" {
		t.Errorf("%v: port 1 has %s", err, one)
	}
	// Rows of its own come first.
	recordGolden(t, dir, "tcplife")
	_, said, err = over(t, "tcplife", "--from", dir, "-o", "json", "--where", `end != "x"`)
	if err != nil || strings.Contains(said, "flows") {
		t.Errorf("%v: %s", err, said)
	}
}

// TestOtherAsks: rows of flows that are not of whole connections do not answer for tcplife.
func TestOtherAsks(t *testing.T) {
	dir := t.TempDir()
	recordWith(t, dir, "flows", "--view", "connections", "-i", "60")
	_, _, err := over(t, "tcplife", "--from", dir)
	if err == nil || !strings.Contains(err.Error(), "but flows: 'seine record tcplife --dir DIR' would have recorded them") {
		t.Errorf("%v", err)
	}
}

// TestAllViews: one stream of both views answers for each of them, and for both.
func TestAllViews(t *testing.T) {
	dir := t.TempDir()
	recordWith(t, dir, "flows", "--view", "all", "-i", "10")
	for flags, want := range map[string][2]bool{"": {true, false}, "--view connections": {false, true}, "--view all": {true, true}} {
		text, _, err := over(t, append([]string{"flows", "--from", dir, "-o", "json"}, strings.Fields(flags)...)...)
		if got := [2]bool{strings.Contains(text, `"service":`), strings.Contains(text, `"wall_ms":`)}; err != nil || got != want {
			t.Errorf("flows %s: %v, services and connections are there: %v, want %v", flags, err, got, want)
		}
	}
}

// TestViews: of three streams of flows each view is answered by its own.
func TestViews(t *testing.T) {
	dir := t.TempDir()
	recordWith(t, dir, "flows", "-i", "10")
	_, _, err := over(t, "flows", "--view", "connections", "--from", dir)
	if err == nil || !strings.Contains(err.Error(), `'seine record "flows --view=connections" --dir DIR' would have recorded it`) {
		t.Errorf("connections were not recorded: %v", err)
	}
	recordWith(t, dir, "flows", "--closed")
	recordWith(t, dir, "flows", "--view", "connections", "-i", "60")
	for flags, want := range map[string]string{"": `"service":`, "--view connections": `"wall_ms":`, "--closed": `"wall_ms":`} {
		text, _, err := over(t, append([]string{"flows", "--from", dir, "-o", "json"}, strings.Fields(flags)...)...)
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("flows %s: %v, no %s in %q", flags, err, want, clip([]byte(text)))
		}
	}
}
