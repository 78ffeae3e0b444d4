// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/watch"
)

// TestRecorded: what is recorded by default can be, each once, and the docs name it.
func TestRecorded(t *testing.T) {
	var streams []string
	for _, line := range recorded {
		if line == watch.Counters {
			continue
		}
		tp, err := parseTaped(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if slices.Contains(streams, tp.src.Name) {
			t.Errorf("%s twice", tp.src.Name)
		}
		streams = append(streams, tp.src.Name)
		if tp.src.Tool == "flows" && tp.src.Config["closed"] != "true" && tp.src.Interval < 10*time.Second {
			t.Errorf("%s has an output each %s", line, tp.src.Interval)
		}
	}
	doc, err := os.ReadFile("../../docs/RECORDING.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range recorded {
		if !strings.Contains(string(doc), "`"+want+"`") {
			t.Errorf("docs/RECORDING.md does not name `%s`", want)
		}
	}
}

// recordCounters records that a counter grew, as a Sampler would say it.
func recordCounters(t *testing.T, dir string, at time.Time, name string, by int64) {
	t.Helper()
	rec, err := record.Open(dir, record.Options{Options: journal.Options{Sync: -1}, Machine: machine()})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	s := watch.CounterSchema()
	stream := rec.Stream(record.Source{Name: watch.Counters, Tool: watch.Counters}, []*row.Schema{s}, nil)
	stream.Start(at)
	rows := watch.NewCounterRows(s, stream)
	rows.Gauge(at, watch.CounterKey{Name: watch.TCPInUse}, 3)
	rows.Local(7, netip.MustParseAddr("192.0.2.1"))
	rows.Count(at, watch.CounterKey{Netns: 7, Name: name}, by)
	stream.End(row.End{Time: at, Last: true})
}

// TestCountersFrom: why judges by the counters of a recording, if there are any; else it says
// what would have recorded them.
func TestCountersFrom(t *testing.T) {
	dir := t.TempDir()
	recordGolden(t, dir, "tcpretrans")
	const asked = "counters: it was not recorded: 'seine record counters --dir DIR' would have recorded it"
	out, said, err := over(t, "why", "--from", dir, "-o", "json")
	if err != nil || strings.Contains(out, "udp-overflow") || !strings.Contains(said, asked) {
		t.Errorf("without counters: %v\n%s\n%s", err, out, said)
	}
	recordCounters(t, dir, time.Date(2026, 11, 14, 23, 36, 12, 0, time.UTC), "UdpRcvbufErrors", 5000)
	out, said, err = over(t, "why", "--from", dir, "-o", "json")
	if err != nil || !strings.Contains(out, `"class":"udp-overflow"`) || !strings.Contains(out, "5000") || strings.Contains(said, asked) {
		t.Errorf("with counters: %v\n%s\n%s", err, out, said)
	}
	list, _, err := over(t, "record", "--list", dir, "-o", "csv")
	if err != nil || !strings.Contains(list, ",counters\n") {
		t.Errorf("--list: %v\n%s", err, list)
	}
}

// TestTaken: the model of a recording is made of the intervals of both views of flows, and not of
// whole connections as well.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	for _, flags := range [][]string{{"--closed"}, {"-i", "10"}, {"--view", "connections", "-i", "60"}, {"-i", "10", "--lport", "80"}} {
		recordWith(t, dir, "flows", flags...)
	}
	rec, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil || len(all) != 4 {
		t.Fatalf("%d streams, %v", len(all), err)
	}
	taken := leastFiltered(all)
	if len(taken) != 2 || taken["flows/services"].Name != "flows --interval=10s" || taken["flows/connections"].Name != "flows --interval=1m0s --view=connections" {
		for view, c := range taken {
			t.Errorf("%s: %s", view, c.Name)
		}
	}
	out, _, err := over(t, "top", "--from", dir, "--until", "2026-11-14T23:36:12Z", "--plain", "--screen", "connections")
	if err != nil || !strings.Contains(out, "192.0.2.1:443") {
		t.Errorf("connections are not shown: %v\n%s", err, out)
	}
}

// TestErrorsFrom: why takes the rows of soconnect and soaccept however they were recorded. Of
// several streams it takes that of --errors, which has sockets that could not be made too.
func TestErrorsFrom(t *testing.T) {
	old, both := t.TempDir(), t.TempDir()
	for _, dir := range []string{old, both} {
		recordGolden(t, dir, "soconnect")
		recordGolden(t, dir, "soaccept")
	}
	recordWith(t, both, "soconnect", "--errors")
	recordWith(t, both, "soconnect", "--errors", "--comm", "curl")
	rec, err := record.Read(both)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if c := leastFiltered(all)["soconnect/"]; c.Name != "soconnect --errors" {
		t.Errorf("%s is taken, want soconnect --errors", c.Name)
	}
	for _, dir := range []string{old, both} {
		out, said, err := over(t, "why", "--from", dir, "-o", "json")
		if err != nil || !strings.Contains(out, `"object":"leaky"`) || strings.Contains(said, "soconnect: it was not recorded") || strings.Contains(said, "soaccept: it was not recorded") {
			t.Errorf("why: %v\n%s\n%s", err, out, said)
		}
		out, said, err = over(t, "top", "--from", dir, "--until", "2026-11-14T23:36:12Z", "--plain", "--screen", "events")
		if err != nil || !strings.Contains(out, "no socket") {
			t.Errorf("top: %v\n%s\n%s", err, out, said)
		}
	}
}
