// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// golden compares with testdata/name.golden; UPDATE=1 writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs\n--- got\n%s--- want\n%s", path, got, want)
	}
}

// life is the schema of tcplife, the row of an event tool.
func life() *row.Schema {
	s := &row.Schema{Tool: "tcplife", Columns: []row.Column{
		{ID: "time", Head: "TIME", Kind: row.Time, Width: 8, Left: true, Help: "when it happened"},
		{ID: "pid", Head: "PID", Kind: row.Uint, Width: 7, Key: true, Help: "process"},
		{ID: "comm", Head: "COMM", Kind: row.Text, Width: 16, Left: true, Key: true, Help: "process name"},
		{ID: "laddr", Head: "LADDR", Kind: row.Addr, Width: 15, Left: true, Help: "local address"},
		{ID: "lport", Head: "LPORT", Kind: row.Uint, Width: 5, Help: "local port"},
		{ID: "raddr", Head: "RADDR", Kind: row.Addr, Width: 15, Left: true, Help: "remote address"},
		{ID: "rport", Head: "RPORT", Kind: row.Uint, Width: 5, Help: "remote port"},
		{ID: "tx_bytes", Head: "TX_KB", Kind: row.Uint, Scale: 1024, Width: 5, Sum: true, Help: "bytes sent"},
		{ID: "rx_bytes", Head: "RX_KB", Kind: row.Uint, Scale: 1024, Width: 5, Sum: true, Help: "bytes received"},
		{ID: "duration_ms", Head: "MS", Kind: row.Uint, Div: 1e6, Prec: 2, Width: 8, Help: "how long the session lasted"},
		{ID: "reset", Head: "RESET", Kind: row.Bool, Help: "it ended by a reset"},
		{ID: "errno", Head: "ERRNO", Kind: row.Int, Help: "its error"},
	}}
	for i := range s.Columns {
		s.Columns[i].Div = max(s.Columns[i].Div, 1)
		s.Columns[i].Scale = max(s.Columns[i].Scale, 1)
	}
	s.Show = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	return s
}

// sizes is the schema of socksize: a histogram by two keys.
func sizes() *row.Schema {
	return &row.Schema{Tool: "socksize", Show: []int{1, 2, 3}, Columns: []row.Column{
		{ID: "time", Head: "TIME", Kind: row.Time, Div: 1, Scale: 1, Left: true},
		{ID: "comm", Head: "COMM", Kind: row.Text, Div: 1, Scale: 1, Left: true},
		{ID: "dir", Head: "DIR", Kind: row.Text, Div: 1, Scale: 1, Left: true},
		{ID: "size", Head: "SIZE", Kind: row.Object, Div: 1, Scale: 1, Left: true, Unit: "bytes", Help: "bytes of a call"},
	}}
}

// drops is the schema of tcpdrop: events with a stack.
func drops() *row.Schema {
	return &row.Schema{Tool: "tcpdrop", View: "drops", Show: []int{0, 1, 2, 3, 4}, Columns: []row.Column{
		{ID: "comm", Head: "COMM", Kind: row.Text, Div: 1, Scale: 1, Width: 10, Left: true},
		{ID: "reason", Head: "REASON", Kind: row.Text, Div: 1, Scale: 1, Width: 12, Left: true},
		{ID: "count", Head: "COUNT", Kind: row.Uint, Div: 1, Scale: 1, Width: 8},
		{ID: "kstack", Head: "KSTACK", Kind: row.Object, Div: 1, Scale: 1, Left: true, As: "kstack"},
		{ID: "ustack", Head: "USTACK", Kind: row.Object, Div: 1, Scale: 1, Left: true, As: "ustack"},
	}}
}

func fill(s *row.Schema, values ...any) *row.Row {
	r := s.New()
	for i, v := range values {
		c := &r.Cells[i]
		switch v := v.(type) {
		case nil:
		case int:
			if c.SetUint(uint64(v)); v < 0 {
				c.SetInt(int64(v))
			}
		case uint64:
			c.SetUint(v)
		case string:
			c.SetText(v)
		case bool:
			if *c = (row.Cell{Kind: row.Bool}); v {
				c.N = 1
			}
		case time.Time:
			*c = row.Cell{Kind: row.Time, N: uint64(v.UnixNano())}
		case netip.Addr:
			a := v.As16()
			*c = row.Cell{Kind: row.Addr, S: string(a[:])}
		default:
			*c = row.Cell{Kind: row.Object, Ref: v}
		}
	}
	return r
}

var (
	moment = time.Date(2026, 11, 14, 23, 36, 1, 123456789, time.UTC)
	four   = netip.MustParseAddr("10.0.0.1")
	six    = netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678")
)

func lifeRows(s *row.Schema) []*row.Row {
	return []*row.Row{
		fill(s, moment, 4218, "curl", netip.MustParseAddr("127.0.0.1"), 40000, four, 443, 1024, 1536, 12345678, false, 0),
		fill(s, moment.Add(time.Second), 999999999, "a-very-long-process-name", six, 1, six, 65535, 1<<40, 1023, 1, true, -111),
		fill(s, moment.Add(2*time.Second), nil, nil, four, 22, four, 23),
		fill(s),
		fill(s, time.Unix(1700000000, 0), 1, "=1+1", four, 1, four, 1, uint64(1<<64-1), 0, 999_995_000, false, 5),
	}
}

// hostile names, each of which would break a naive writer.
var hostile = []string{
	"quote\"s", "back\\slash", "new\nline", "cr\r\nlf", "lone\rcr\r", "tab\there", "bell\a\x1b[31mred", "nul\x00", "comma,semi;colon",
	"bad\xffutf\xc3", "half\xe2\x82", "wide 日本 ü", "\u202eright to left", "\u2028line", "zero\u200bwidth", " spaces ", "@x", "-x", "+x", "&lt;&", "<b>", "{}|\\N\\G", "'; drop",
	strings.Repeat("long", 3000),
}

func hostileRows(s *row.Schema) []*row.Row {
	var rows []*row.Row
	for i, h := range hostile {
		rows = append(rows, fill(s, moment, i+1, h, four, 1, six, 2, 3, 4, 5, true, -6))
	}
	return rows
}

func hist(values ...uint64) *kern.Hist {
	h := &kern.Hist{}
	for _, v := range values {
		h.Add(v)
	}
	return h
}

func sizeRows(s *row.Schema) []*row.Row {
	big := hist()
	for i := range uint64(431) {
		big.Add(0)
		big.Add(i * i)
	}
	return []*row.Row{
		fill(s, moment, "sshd", "read", hist(36)),
		fill(s, moment, "java", "read", big),
		fill(s, moment, "a b=\"c\"\n", "write", hist(1, 1024, 3<<20)),
		fill(s, moment, nil, nil, hist()),
	}
}

func dropRows(s *row.Schema) []*row.Row {
	kernel := &kern.Stack{Frames: []kern.Frame{
		{Sym: "tcp_drop_reason", Off: 5, Module: "vmlinux"}, {Sym: "veth_poll", Off: 39, Module: "veth"}, {Off: 0xffffffff81000000}}}
	user := &kern.Stack{Broken: true, Frames: []kern.Frame{
		{Sym: "connect", Off: 75, Module: "/lib/x86_64-linux-gnu/libc.so.6"},
		{Sym: "std::map<int, a;b>::at(int)\n", Off: 1, Module: "/opt/a b"}, {Off: 0x7f00, Module: "/usr/bin/app"}, {Off: 0x1c, Module: "[anon]"}}}
	return []*row.Row{
		fill(s, "curl", "NO_SOCKET", 7, kernel, user),
		fill(s, "a;b c", "OTHER", 1, &kern.Stack{}, -1), // the user stack was not found: its id is still there
		fill(s, nil, nil, nil, nil, user),
	}
}

func render(t *testing.T, format string, o Options, rows []*row.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	o.Zone = time.UTC
	s, err := New(format, &b, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := s.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(row.End{Time: moment, Last: true}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	l, z, d := life(), sizes(), drops()
	graph := Graph{From: []string{"comm", "pid"}, To: []string{"raddr", "rport"}, Sum: []string{"tx_bytes", "rx_bytes"}}
	for _, tt := range []struct {
		name   string
		schema *row.Schema
		rows   []*row.Row
	}{
		{"life", l, lifeRows(l)}, {"hostile", l, hostileRows(l)[:len(hostile)-1]}, {"sizes", z, sizeRows(z)}, {"drops", d, dropRows(d)},
	} {
		for _, format := range Formats() {
			if format == "svg" || format == "png" {
				continue // pictures are of tools that say what to draw
			}
			if format == "parquet" {
				continue // TestParquet and TestDuckDB read what it writes
			}
			if format == "pcapng" {
				continue // these rows have no packets; TestCapture reads what it writes
			}
			if format == "folded" && tt.schema != d || format == "dot" && tt.schema != l {
				continue
			}
			t.Run(tt.name+"/"+format, func(t *testing.T) {
				golden(t, tt.name+"."+format, render(t, format, Options{Schemas: []*row.Schema{tt.schema}, Graph: graph}, tt.rows))
			})
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	for format, want := range map[string]string{
		"jsno":  `unknown output format "jsno": did you mean json?`,
		"xmlxx": `unknown output format "xmlxx"`,
	} {
		if _, err := New(format, io.Discard, Options{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if len(Formats()) != len(makers) {
		t.Error("Formats does not list all")
	}
}

func TestSchemasThatCannotBeWritten(t *testing.T) {
	two, clash := sizes(), sizes()
	two.Columns = append(two.Columns, row.Column{ID: "more", Kind: row.Object, Unit: "us"})
	clash.Columns = append(clash.Columns, row.Column{ID: "p99", Kind: row.Uint})
	for _, s := range []*row.Schema{two, clash} {
		if _, err := New("json", io.Discard, Options{Schemas: []*row.Schema{s}}); err == nil {
			t.Errorf("columns %v were taken", s.IDs())
		}
	}
}

// fails at its second write only.
type fails struct {
	n   int
	err error
}

func (f *fails) Write(p []byte) (int, error) {
	if f.n++; f.n == 2 {
		return 0, f.err
	}
	return len(p), nil
}

// A closed pipe comes back as what it is, at once and from then on.
func TestWriteErrors(t *testing.T) {
	for _, format := range []string{"table", "json", "csv"} {
		s := life()
		out, err := New(format, &fails{err: syscall.EPIPE}, Options{Schemas: []*row.Schema{s}})
		if err != nil {
			t.Fatal(err)
		}
		r := lifeRows(s)[0]
		if err := errors.Join(out.Row(r), out.End(row.End{})); err != nil {
			t.Fatalf("%s: first batch: %v", format, err)
		}
		if err := out.Row(r); err != nil {
			t.Fatal(err)
		}
		if err := out.End(row.End{}); err != syscall.EPIPE {
			t.Errorf("%s: end after the pipe was closed: %v, want EPIPE", format, err)
		}
		if err := out.Row(r); err != syscall.EPIPE {
			t.Errorf("%s: row after that: %v, want EPIPE", format, err)
		}
		if err := out.End(row.End{Last: true}); err != syscall.EPIPE {
			t.Errorf("%s: a hole in the output went unseen: %v, want EPIPE", format, err)
		}
	}
}

// Rows of a batch are seen when it ends, and a long batch before that.
func TestFlush(t *testing.T) {
	s := life()
	for _, format := range []string{"table", "json", "csv"} {
		var b bytes.Buffer
		out, err := New(format, &b, Options{Schemas: []*row.Schema{s}})
		if err != nil {
			t.Fatal(err)
		}
		r := lifeRows(s)[0]
		if err := out.Row(r); err != nil || b.Len() > 0 {
			t.Fatalf("%s: %d bytes before the end of the batch, error %v", format, b.Len(), err)
		}
		if err := out.End(row.End{}); err != nil || !bytes.HasSuffix(b.Bytes(), []byte("\n")) || !bytes.Contains(b.Bytes(), []byte("curl")) {
			t.Errorf("%s: after the end of the batch: %q, error %v", format, b.Bytes(), err)
		}
		b.Reset()
		for range 2000 {
			if err := out.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		if b.Len() < full {
			t.Errorf("%s: a batch of 2000 rows still sits in memory", format)
		}
	}
}

func benchmark(b *testing.B, format string) {
	s := life()
	out, err := New(format, io.Discard, Options{Schemas: []*row.Schema{s}, Start: moment})
	if err != nil {
		b.Fatal(err)
	}
	r := lifeRows(s)[0]
	r.Cells[5] = lifeRows(s)[1].Cells[5] // one address of each family
	r.Cells[11].SetInt(-110)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r.Cells[0].N += 1_000_003 // a thousand rows a second
		if err := out.Row(r); err != nil {
			b.Fatal(err)
		}
		if n++; n%100 == 0 {
			if err := out.End(row.End{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkJSON(b *testing.B)  { benchmark(b, "json") }
func BenchmarkCSV(b *testing.B)   { benchmark(b, "csv") }
func BenchmarkTable(b *testing.B) { benchmark(b, "table") }

// Rows are written without a byte of garbage.
func TestNoAllocations(t *testing.T) {
	for _, format := range []string{"json", "csv", "table"} {
		s := life()
		out, err := New(format, io.Discard, Options{Schemas: []*row.Schema{s}})
		if err != nil {
			t.Fatal(err)
		}
		rows := append(lifeRows(s), hostileRows(s)...)
		write := func() {
			for _, r := range rows {
				r.Cells[0].N += 1e9
				if err := out.Row(r); err != nil {
					t.Fatal(err)
				}
			}
			if err := out.End(row.End{}); err != nil {
				t.Fatal(err)
			}
		}
		write() // buffers grow to their size
		if n := testing.AllocsPerRun(100, write); n > 0 {
			t.Errorf("%s: %v allocations for %d rows, want 0", format, n, len(rows))
		}
	}
}
