// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/test/duckdb"
	"seine/tools"
)

// tcplifeRows writes n rows of tcplife into a recording, of which each segment becomes Parquet.
func tcplifeRows(t *testing.T, dir, parquetDir string, n int, budget int64) *dataset {
	t.Helper()
	data, err := openDataset(parquetDir)
	if err != nil {
		t.Fatal(err)
	}
	data.fail = func(err error) { t.Error(err) }
	rec, err := record.Open(dir, record.Options{Options: journal.Options{
		Budget: budget, Segment: 8_000, Sync: -1, Others: data.others, Free: data.free, Closed: data.closed,
	}})
	if err != nil {
		t.Fatal(err)
	}
	data.room = rec.MakeRoom
	stop := data.start()
	c, err := newCommand(find1(t, "tcplife"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	s := c.run.prepared.Schemas[0]
	st := rec.Stream(record.Source{Name: "tcplife", Tool: "tcplife"}, []*row.Schema{s}, nil)
	r := s.New()
	for i := range n {
		// Half of the rows are before midnight.
		*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(1_794_009_600_000_000_000 + (i-n/2)*1_000_000)}
		r.Get("comm").SetText(fmt.Sprintf("p\xff%d", i%7))
		r.Get("tx_bytes").SetUint(uint64(i))
		st.Row(r)
		if i%100 == 99 {
			st.Flush()
		}
	}
	st.End(row.End{Last: true})
	rec.Close()
	stop()
	return data
}

// TestDataset checks that the files of a recording hold its rows, each once, by tool and day.
func TestDataset(t *testing.T) {
	dir, pq := t.TempDir(), t.TempDir()
	const n = 20_000
	tcplifeRows(t, dir, pq, n, 0)
	segments, _ := filepath.Glob(filepath.Join(dir, "*"+journal.Ext))
	if len(segments) < 3 {
		t.Errorf("%d segments: it did not rotate", len(segments))
	}
	rows := map[string]int64{}
	files := 0
	filepath.WalkDir(pq, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".parquet") {
			t.Errorf("%s is left over", path)
			return nil
		}
		b, _ := os.ReadFile(path)
		f, err := parquet.OpenFile(strings.NewReader(string(b)), int64(len(b)))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		rel, _ := filepath.Rel(pq, filepath.Dir(path))
		rows[rel] += f.NumRows()
		files++
		return nil
	})
	want := map[string]int64{"tool=tcplife/date=2026-11-06": n / 2, "tool=tcplife/date=2026-11-07": n / 2}
	if fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("rows %v in %d files, want %v", rows, files, want)
	}
	sql := "select date, count(*) n, cast(sum(tx_bytes) as varchar) s, count(distinct comm) c from read_parquet('" + pq + "/**/*.parquet', hive_partitioning=true) where tool='tcplife' group by all order by 1"
	half := n / 2
	sum := func(from, to int) int { return (to - from) * (from + to - 1) / 2 }
	wantSQL := fmt.Sprintf(`[{"date":"2026-11-06","n":"%d","s":"%d","c":"7"},{"date":"2026-11-07","n":"%d","s":"%d","c":"7"}]`, half, sum(0, half), half, sum(half, n))
	if got := duckdb.Query(t, sql); got != wantSQL {
		t.Errorf("DuckDB: %s, want %s", got, wantSQL)
	}
}

// TestDatasetTools checks that rows of every view of every tool can be written as Parquet.
func TestDatasetTools(t *testing.T) {
	dir, pq := t.TempDir(), t.TempDir()
	rec, end, err := openRecording(dir, pq, journal.Options{Sync: -1}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	views := 0
	for _, tl := range tools.All {
		c, err := newCommand(tl, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.prepare(); err != nil {
			t.Fatal(err)
		}
		schemas := c.run.prepared.Schemas
		st := rec.Stream(record.Source{Name: tl.Name, Tool: tl.Name}, schemas, nil)
		for _, s := range schemas {
			if err := st.Row(s.New()); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.End(row.End{Last: true}); err != nil {
			t.Fatal(err)
		}
		views += len(schemas)
	}
	end()
	files, err := filepath.Glob(filepath.Join(pq, "tool=*", "date=*", "*.parquet"))
	if err != nil || len(files) != views {
		t.Errorf("%d files for %d views of tools (%v)", len(files), views, err)
	}
}

// TestDatasetBudget checks that the budget covers both directories.
func TestDatasetBudget(t *testing.T) {
	dir, pq := t.TempDir(), t.TempDir()
	const budget = 1 << 20
	data := tcplifeRows(t, dir, pq, 200_000, budget)
	var taken int64
	for _, d := range []string{dir, pq} {
		filepath.WalkDir(d, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				if st, err := e.Info(); err == nil {
					taken += blocksOf(st.Size())
				}
			}
			return err
		})
	}
	if taken > budget {
		t.Errorf("%d bytes, more than the budget of %d", taken, budget)
	}
	if data.reserved != 0 {
		t.Errorf("%d bytes are still reserved", data.reserved)
	}
	if len(data.files) == 0 {
		t.Error("there is no Parquet at all")
	}
}

// TestDatasetGrows checks that Parquet files which take more than was expected have the oldest
// deleted before they are written, and that one for which there is no room is left out.
func TestDatasetGrows(t *testing.T) {
	dir := t.TempDir()
	tcplifeRows(t, dir, t.TempDir(), 1000, 0)
	segments, _ := filepath.Glob(filepath.Join(dir, "*"+journal.Ext))
	for _, full := range []bool{false, true} {
		d, err := openDataset(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		d.room = func() bool { asked++; return !full }
		q := queued{path: segments[0], room: 1}
		d.reserved = 1
		err = d.convert(&q)
		if full {
			if err == nil || len(d.files) > 0 {
				t.Errorf("no room: %v, %d files", err, len(d.files))
			}
			left, _ := filepath.Glob(filepath.Join(d.dir, "*", "*", "*"))
			if len(left) > 0 {
				t.Errorf("no room, and %v is left", left)
			}
			continue
		}
		if err != nil || len(d.files) == 0 || asked < 2 {
			t.Errorf("%v, %d files, asked for room %d times", err, len(d.files), asked)
		}
		if d.taken > q.room || d.reserved != q.room {
			t.Errorf("%d bytes were written with room for %d (%d reserved)", d.taken, q.room, d.reserved)
		}
	}
}
