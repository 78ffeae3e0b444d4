// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/test/duckdb"
)

func parquetRows() (*row.Schema, []*row.Row) {
	s := &row.Schema{Tool: "test", Columns: []row.Column{
		{ID: "time", Kind: row.Time, Div: 1}, {ID: "comm", Kind: row.Text, Div: 1}, {ID: "raddr", Kind: row.Addr, Div: 1}, {ID: "latency_us", Kind: row.Uint, Div: 1000},
		{ID: "delta", Kind: row.Int, Div: 1}, {ID: "pending", Kind: row.Bool, Div: 1}, {ID: "hist", Kind: row.Object, Unit: "us", Div: 1}, {ID: "kstack", Kind: row.Object, Div: 1},
	}}
	full := s.New()
	*full.Get("time") = row.Cell{Kind: row.Time, N: 1794000000123456789}
	full.Get("comm").SetText("bad\xff\x00name")
	*full.Get("raddr") = row.Cell{Kind: row.Addr, S: string([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1})}
	full.Get("latency_us").SetUint(1234567)
	full.Get("delta").SetInt(-5)
	*full.Get("pending") = row.Cell{Kind: row.Bool, N: 1}
	h := &kern.Hist{}
	for _, v := range []uint64{1, 5, 5, 100} {
		h.Add(v)
	}
	*full.Get("hist") = row.Cell{Kind: row.Object, Ref: h}
	*full.Get("kstack") = row.Cell{Kind: row.Object, Ref: &kern.Stack{Frames: []kern.Frame{{Sym: "a", Off: 1, Module: "vmlinux"}, {Sym: "b", Off: 2}}}}
	empty := s.New()
	*empty.Get("hist") = row.Cell{Kind: row.Object, Ref: &kern.Hist{}}
	*empty.Get("kstack") = row.Cell{Kind: row.Object, Ref: &kern.Stack{}}
	large := s.New()
	large.Get("latency_us").SetUint(1<<64 - 1) // has no place in DECIMAL(18): absent, not wrong
	path := s.New()
	path.Get("raddr").SetText("/run/socket")
	return s, []*row.Row{full, empty, s.New(), large, path}
}

func writeParquet(t *testing.T, s *row.Schema, rows []*row.Row, times int) []byte {
	t.Helper()
	var b bytes.Buffer
	to, err := New("parquet", &b, Options{Schemas: []*row.Schema{s}})
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		for _, r := range rows {
			if err := to.Row(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := to.End(row.End{Last: true, Output: true}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestParquet(t *testing.T) {
	s, rows := parquetRows()
	b := writeParquet(t, s, rows, 300)
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if f.NumRows() != 1500 {
		t.Errorf("%d rows, want 1500", f.NumRows())
	}
	var names []string
	for _, c := range f.Schema().Fields() {
		names = append(names, c.Name())
	}
	if got, want := strings.Join(names, " "), "time time_ns comm raddr latency_us delta pending hist kstack"; got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
	if _, err := New("parquet", &bytes.Buffer{}, Options{Schemas: []*row.Schema{s, s}}); err == nil {
		t.Error("two kinds of rows in one file were not refused")
	}
	if _, err := New("parquet", &bytes.Buffer{}, Options{Schemas: []*row.Schema{s}, Terminal: true}); err == nil {
		t.Error("a terminal was not refused")
	}
}

// TestDuckDB reads a file with DuckDB.
func TestDuckDB(t *testing.T) {
	s, rows := parquetRows()
	file := filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(file, writeParquet(t, s, rows, 300), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ sql, want string }{
		{"select count(*) n, count(comm) c, count(latency_us) l from f", `[{"n":"1500","c":"300","l":"300"}]`},
		{"select distinct comm from f where comm is not null", "[{\"comm\":\"bad\uFFFD\\u0000name\"}]"},
		{"select distinct cast(time as varchar) t, time_ns from f where time is not null", `[{"t":"2026-11-06 21:20:00.123456+00","time_ns":"1794000000123456789"}]`},
		{"select cast(sum(latency_us) as varchar) s, typeof(any_value(latency_us)) t, sum(delta) d from f", `[{"s":"370370.100","t":"DECIMAL(18,3)","d":"-1500"}]`},
		{"select distinct raddr from f where raddr is not null order by 1", `[{"raddr":"/run/socket"},{"raddr":"192.0.2.1"}]`},
		{"select sum(hist.count) c, sum(hist.sum) s, max(hist.max) m from f", `[{"c":"1200","s":"33300","m":"100"}]`},
		{"select b.lo, b.hi, sum(b.count) n from (select unnest(hist.buckets) b from f) group by all having n > 0 order by 1", `[{"lo":"1","hi":"2","n":"300"},{"lo":"4","hi":"8","n":"600"},{"lo":"64","hi":"128","n":"300"}]`},
		{"select kstack[1].sym a, kstack[2].off b, kstack[1].mod m, count(*) n from f where len(kstack) > 0 group by all", `[{"a":"a","b":"2","m":"vmlinux","n":"300"}]`},
		{"select count(*) n from f where len(kstack) = 0", `[{"n":"300"}]`},
		{"select distinct pending from f where pending", `[{"pending":true}]`},
	} {
		if got := duckdb.Query(t, "set timezone='UTC'; create view f as select * from '"+file+"'; "+c.sql); got != c.want {
			t.Errorf("%s: got %s, want %s", c.sql, got, c.want)
		}
	}
}
