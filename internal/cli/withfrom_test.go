// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/row"
	"seine/test/golden"
	"seine/tools"
)

// recordGolden records the golden rows of tools, one run after the other.
func recordGolden(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		live, err := newCommand(find1(t, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []*row.Row
		rows := func(s []*row.Schema) ([]*row.Row, error) {
			var err error
			all, err = golden.Rows("../../tools", name, s)
			return all, err
		}
		ends := func(i, _ int) *row.End {
			if i != 1 {
				return nil
			}
			e := &row.End{Time: latest(all), Tool: name, Losses: []row.Loss{{Kind: "ring full", N: 7}}}
			if c := all[i].Get("time"); c != nil && c.Kind == row.Time {
				e.Time = time.Unix(0, int64(c.N))
			}
			return e
		}
		if err := live.live(dir, rows, ends); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// over runs seine with these arguments.
func over(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, said bytes.Buffer
	root := New(&out, &said)
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), said.String(), err
}

// byTime are lines of JSON in the order of their time. Rows of one moment stay as they are.
func byTime(t *testing.T, text string) []string {
	t.Helper()
	type line struct {
		at   time.Time
		text string
	}
	var all []line
	for l := range strings.Lines(text) {
		var o struct {
			Time   time.Time
			Losses map[string]int
		}
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if o.Losses == nil {
			all = append(all, line{o.Time, l})
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	var out []string
	for _, l := range all {
		out = append(out, l.text)
	}
	return out
}

// rowsOf are the lines of JSON that are rows.
func rowsOf(text string) []string {
	return slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(l string) bool { return strings.Contains(l, `"losses":{`) })
}

// TestWithFrom holds several tools over a recording against each of them alone, put in order.
func TestWithFrom(t *testing.T) {
	var names []string
	for _, tl := range tools.All {
		names = append(names, tl.Name)
	}
	dir := t.TempDir()
	recordGolden(t, dir, names...)
	var alone string
	losses := 0
	args := []string{"with"}
	for _, name := range names {
		out, said, err := over(t, name, "--from", dir, "-o", "json")
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, said)
		}
		if !slices.Equal(byTime(t, out), rowsOf(out)) {
			continue // made up out of order, by more than a merge waits
		}
		args = append(args, name)
		alone += out
		losses += strings.Count(out, `"losses"`)
	}
	if len(args) < len(names)/2 {
		t.Fatalf("only %v have rows in order", args)
	}
	out, said, err := over(t, append(args, "--from", dir, "-o", "json")...)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	got, want := byTime(t, out), byTime(t, alone)
	if !slices.Equal(rowsOf(out), got) {
		t.Error("rows are not in the order of their time")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d rows, and %d of the tools alone", len(got), len(want))
	}
	if n := strings.Count(out, `"losses"`); n != losses || losses == 0 {
		t.Errorf("%d losses, and %d of the tools alone", n, losses)
	}
	if want := fmt.Sprintf("seine: %d rows, %d lost", len(want), 7*losses); !strings.Contains(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}

	// A timeline has the same rows, and as many as -n and the range leave.
	table, _, err := over(t, append(args, "--from", dir, "-o", "csv")...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || len(lines) < len(want)/2 || strings.Join(lines[0][:2], " ") != "time tool" {
		t.Fatalf("%v: %d lines of %d rows", err, len(lines), len(want))
	}
	if !slices.IsSortedFunc(lines[1:], func(a, b []string) int { return strings.Compare(a[0], b[0]) }) {
		t.Error("the timeline is not in the order of time")
	}
	for _, c := range []struct {
		flags []string
		rows  int
	}{{[]string{"-n", "3"}, 3}, {[]string{"--until", "2001-01-01T00:00:00Z"}, 0}, {[]string{"--comm", "nosuchprocess"}, 0}} {
		out, said, err := over(t, append([]string{"with", "tcplife", "soconnect", "--from", dir, "-o", "csv"}, c.flags...)...)
		if n := strings.Count(out, "\n") - 1; err != nil || n != c.rows {
			t.Errorf("%v: %v, %d rows, want %d: %s%s", c.flags, err, n, c.rows, out, said)
		}
	}
}

// TestWithFromRefused: what a recording cannot answer is refused, and says which tool.
func TestWithFromRefused(t *testing.T) {
	dir := t.TempDir()
	recordGolden(t, dir, "tcplife")
	for _, c := range []struct{ args, want string }{
		{"tcplife tcpretrans --from DIR", "no rows of tcpretrans"},
		{"tcplife --from DIR --memory 1M", "--memory applies to the kernel"},
		{"tcplife --since 14:00", "--since applies to recordings"},
		{"tcplife --from DIR --dev lo", "rows of tcplife in the recording lack that column"},
	} {
		args := strings.Fields(strings.ReplaceAll("with "+c.args, "DIR", dir))
		if _, _, err := over(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	if _, _, err := over(t, "with", "tcplife --from "+dir); err == nil || !strings.Contains(err.Error(), "outside of the quotes") {
		t.Errorf("--from of one tool: %v", err)
	}
}
