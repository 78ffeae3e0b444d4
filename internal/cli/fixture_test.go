// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/test/golden"
	"seine/tools"
)

// fixture is a recording of the golden rows of every tool, as the first version that records
// wrote it, and what each tool prints of it. UPDATE=1 writes it if there is none.
const (
	fixture  = "testdata/recording-1"
	replays  = "testdata/recording-1.jsonl"
	fixtures = 40 // tools that it has, at least
)

// TestFixture: recordings of released versions stay readable, with all their values. A column that is renamed
// names its old id (was= in its tag), and has its new one in recording-1.jsonl; the recording itself never changes.
func TestFixture(t *testing.T) {
	_, err := os.Stat(fixture)
	write := os.Getenv("UPDATE") != "" && os.IsNotExist(err)
	if write {
		writeFixture(t)
	}
	rec, err := record.Read(fixture)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range all {
		text, _, err := over(t, c.Tool, "--from", fixture, "-o", "json")
		if err != nil || text == "" {
			t.Errorf("%s: %v: %q", c.Tool, err, text)
		}
		got.WriteString(text)
	}
	if len(all) < fixtures {
		t.Errorf("%d tools in the recording, want %d", len(all), fixtures)
	}
	if write {
		if err := os.WriteFile(replays, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(replays)
	if err != nil {
		t.Fatal(err)
	}
	have, want := strings.Split(got.String(), "\n"), strings.Split(string(b), "\n")
	if len(have) != len(want) {
		t.Fatalf("%d rows, want %d", len(have)-1, len(want)-1)
	}
	for i := range want {
		if have[i] != want[i] {
			t.Errorf("row %d: got\n%s\nwant\n%s", i+1, have[i], want[i])
		}
	}
}

func writeFixture(t *testing.T) {
	t.Helper()
	at := time.Date(2026, 11, 14, 23, 36, 0, 0, time.UTC)
	rec, err := record.Open(fixture, record.Options{
		Options: journal.Options{Sync: -1, Now: func() time.Time { return at }},
		Machine: record.Machine{Host: "fixture", Kernel: "6.18", Arch: "amd64", Boot: "b", Version: "1.1"},
		Netns:   func(uint64) string { return "ns" }, User: func(uint64) string { return "user" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools.All {
		c, err := newCommand(tl, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.prepare(); err != nil {
			t.Fatal(err)
		}
		rows, err := golden.Rows("../../tools", tl.Name, c.run.prepared.Schemas)
		if err != nil {
			t.Fatal(err)
		}
		stream := rec.Stream(c.run.source(c.fs, c.opts), c.run.prepared.Schemas, nil)
		stream.Start(at)
		for _, r := range rows {
			if err := stream.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		stream.End(row.End{Time: latest(rows), Output: true, Last: true})
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(fixture, ".writer"))
}
