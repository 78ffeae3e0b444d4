// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
)

// TestFollow: two readers follow a recording while it is written and its segments change. Each
// prints every row once, in order.
func TestFollow(t *testing.T) {
	const n = 600
	dir := t.TempDir()
	rec, err := record.Open(dir, record.Options{Options: journal.Options{Sync: -1, Segment: 8 << 10}, Machine: machine()})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl := find1(t, "tcplife")
	schemas, err := tl.Schemas(tl.Views(tl.NewConfig()))
	if err != nil {
		t.Fatal(err)
	}
	stream := rec.Stream(record.Source{Name: "tcplife", Tool: "tcplife", Config: config(tl.NewConfig())}, schemas, nil)
	put := func(i int) {
		r := schemas[0].New()
		*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(1_794_000_000_000_000_000 + i*1_000_000)}
		r.Get("comm").SetText("writer")
		r.Get("pid").SetUint(uint64(i))
		if err := stream.Row(r); err != nil {
			t.Error(err)
		}
		stream.Flush()
	}
	put(0)
	var wait sync.WaitGroup
	var got [2]string
	var errs [2]error
	for i := range got {
		wait.Go(func() {
			got[i], _, errs[i] = over(t, "tcplife", "--from", dir, "--follow", "-n", fmt.Sprint(n), "--columns", "pid", "-o", "csv")
		})
	}
	for i := 1; i < n; i++ {
		put(i)
		if i%20 == 0 {
			time.Sleep(5 * time.Millisecond) // the readers come along
		}
	}
	wait.Wait()
	want := "pid\n"
	for i := range n {
		want += fmt.Sprintln(i)
	}
	for i, text := range got {
		if errs[i] != nil || text != want {
			t.Errorf("reader %d: %v, %d lines of %d: %q…", i, errs[i], strings.Count(text, "\n"), n+1, clip([]byte(text)))
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.seine")); len(files) < 4 {
		t.Errorf("%d segments: nothing was tested", len(files))
	}
}
