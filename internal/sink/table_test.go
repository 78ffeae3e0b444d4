// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"seine/internal/kern"
	"seine/internal/row"
)

func TestTableTime(t *testing.T) {
	s := life()
	rows := []*row.Row{fill(s, moment, 1, "a")}
	columns, err := Choose("table", []*row.Schema{s}, "time,pid,comm")
	if err != nil {
		t.Fatal(err)
	}
	for form, want := range map[string]string{
		"":      "TIME         PID COMM\n23:36:01       1 a\n",
		"clock": "TIME         PID COMM\n23:36:01       1 a\n",
		"micro": "TIME                PID COMM\n23:36:01.123456       1 a\n",
		"iso":   "TIME                                 PID COMM\n2026-11-14T23:36:01.123456Z            1 a\n",
		"rel":   "TIME(s)       PID COMM\n61.123          1 a\n",
		"unix":  "TIME                  PID COMM\n1794699361.123457       1 a\n",
		"none":  "    PID COMM\n      1 a\n",
	} {
		got := render(t, "table", Options{Schemas: []*row.Schema{s}, Columns: columns, Time: form, Start: moment.Truncate(time.Hour).Add(35 * time.Minute)}, rows)
		if string(got) != want {
			t.Errorf("--time %s: got\n%s want\n%s", form, got, want)
		}
	}
	if _, err := New("table", io.Discard, Options{Time: "julian"}); err == nil || !strings.Contains(err.Error(), "clock, micro, iso, rel, unix, none") {
		t.Errorf("a strange form of time: %v", err)
	}
}

// tcpconnect's own head is TIME(s); with a clock it must not say so.
func TestTableTimeHead(t *testing.T) {
	s := life()
	s.Columns[0].Head = "TIME(s)"
	s.Show = []int{0}
	for form, want := range map[string]string{"rel": "TIME(s)\n", "clock": "TIME\n"} {
		if got := render(t, "table", Options{Schemas: []*row.Schema{s}, Time: form}, nil); string(got) != want {
			t.Errorf("--time %s: got %q, want %q", form, got, want)
		}
	}
}

// ticks renders two outputs of an interval tool and an empty one.
func ticks(t *testing.T, o Options) string {
	t.Helper()
	s := life()
	s.Show = []int{1, 2}
	o.Schemas, o.Interval, o.Zone = []*row.Schema{s}, true, time.UTC
	var b bytes.Buffer
	out, err := New("table", &b, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.End(row.End{}); err != nil { // ready
		t.Fatal(err)
	}
	for i, rows := range [][]*row.Row{{fill(s, moment, 1, "a"), fill(s, moment, 2, "b")}, {}, {fill(s, moment.Add(2*time.Second), 3, "c")}} {
		for _, r := range rows {
			if err := out.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.End(row.End{Time: moment.Add(time.Duration(i) * time.Second), Output: true, Last: i == 2}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestTableOutputs(t *testing.T) {
	const clear = "\x1b[H\x1b[2J"
	blocks := []string{
		"23:36:01\n    PID COMM\n      1 a\n      2 b\n",
		"23:36:02\n    PID COMM\n",
		"23:36:03\n    PID COMM\n      3 c\n",
	}
	load := func(time.Time) string { return "load 0.5" }
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"piped", Options{}, strings.Join(blocks, "\n")},
		{"piped never clears", Options{Clear: true}, strings.Join(blocks, "\n")},
		{"terminal", Options{Terminal: true, Clear: true, Height: 6}, clear + strings.Join(blocks, clear)},
		{"terminal, --no-clear", Options{Terminal: true, Height: 3}, strings.Join(blocks, "\n")},
		{"no head", Options{HideHeader: true}, "23:36:01\n      1 a\n      2 b\n\n23:36:02\n\n23:36:03\n      3 c\n"},
		{"no time", Options{Time: "none"}, strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(strings.Join(blocks, "\n"), "23:36:01\n", ""), "23:36:02\n", ""), "23:36:03\n", "")},
		{"a line above", Options{Above: load}, strings.NewReplacer("01\n", "01 load 0.5\n", "02\n", "02 load 0.5\n", "03\n", "03 load 0.5\n").Replace(strings.Join(blocks, "\n"))},
	} {
		if got := ticks(t, tt.o); got != tt.want {
			t.Errorf("%s: got\n%q\nwant\n%q", tt.name, got, tt.want)
		}
	}
}

// TestTableFits: on a screen that is cleared for each output, no row scrolls away.
func TestTableFits(t *testing.T) {
	s := life()
	columns, err := Choose("table", []*row.Schema{s}, "pid")
	if err != nil {
		t.Fatal(err)
	}
	var rows []*row.Row
	for i := range 9 {
		rows = append(rows, fill(s, moment, i+1))
	}
	for _, tt := range []struct {
		o       Options
		rows    int
		message string
	}{
		{Options{Terminal: true, Clear: true, Height: 10}, 6, "… 3 more\n"}, // the time, the head, and the cursor's line
		{Options{Terminal: true, Clear: true, Height: 13}, 9, ""},
		{Options{Terminal: true, Clear: true, Height: 10, Time: "none"}, 7, "… 2 more\n"},
		{Options{Terminal: true, Height: 10}, 9, ""},
		{Options{Terminal: true, Clear: true}, 9, ""},
		{Options{Clear: true, Height: 10}, 9, ""}, // a file
	} {
		tt.o.Schemas, tt.o.Columns, tt.o.Interval = []*row.Schema{s}, columns, true
		got := string(render(t, "table", tt.o, rows))
		if n := strings.Count(got, "\n     "); n != tt.rows || !strings.HasSuffix(got, tt.message) || tt.message == "" && strings.Contains(got, "more") {
			t.Errorf("%+v: %q: %d rows, want %d, and %q", tt.o, got, n, tt.rows, tt.message)
		}
	}
}

// With time among the chosen columns there is no line with it.
func TestTableOutputsWithChosenTime(t *testing.T) {
	s := life()
	columns, err := Choose("table", []*row.Schema{s}, "time,pid")
	if err != nil {
		t.Fatal(err)
	}
	got := render(t, "table", Options{Schemas: []*row.Schema{s}, Columns: columns, Interval: true}, []*row.Row{fill(s, moment, 1)})
	if want := "TIME         PID\n23:36:01       1\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTableHeadRepeats(t *testing.T) {
	s := life()
	var rows []*row.Row
	for i := range 23 {
		rows = append(rows, fill(s, moment, i))
	}
	for _, tt := range []struct {
		o    Options
		want int
	}{
		{Options{}, 1},
		{Options{Height: 10}, 1}, // not a terminal
		{Options{Terminal: true}, 1},
		{Options{Terminal: true, Height: 10}, 3}, // 8 rows below each head
		{Options{Terminal: true, Height: 10, HideHeader: true}, 0},
	} {
		tt.o.Schemas = []*row.Schema{s}
		b := render(t, "table", tt.o, rows)
		if got := bytes.Count(b, []byte("LADDR")); got != tt.want {
			t.Errorf("%+v: %d heads, want %d", tt.o, got, tt.want)
		}
		if got := bytes.Count(b, []byte("\n")); got != 23+tt.want {
			t.Errorf("%d lines, want %d", got, 23+tt.want)
		}
		if bytes.ContainsRune(b, 0x1b) {
			t.Error("control codes in the rows of an event tool")
		}
	}
}

// The head waits for the first rows, which say how wide columns have to be; it
// comes at the end if there are none, and once.
func TestTableHeadWaits(t *testing.T) {
	s := life()
	s.Show = []int{1}
	for _, n := range []int{0, 1} {
		var b bytes.Buffer
		out, err := New("table", &b, Options{Schemas: []*row.Schema{s}})
		if err != nil {
			t.Fatal(err)
		}
		if err := out.End(row.End{}); err != nil || b.Len() > 0 {
			t.Fatalf("got %q, error %v", b.String(), err)
		}
		want := "    PID\n"
		if n > 0 {
			want += "      5\n"
			if err := out.Row(fill(s, moment, 5)); err != nil {
				t.Fatal(err)
			}
			if err := out.End(row.End{}); err != nil || b.String() != want {
				t.Fatalf("got %q, error %v, want %q", b.String(), err, want)
			}
		}
		if err := out.End(row.End{Last: true}); err != nil || b.String() != want {
			t.Errorf("got %q, error %v, want %q", b.String(), err, want)
		}
	}
}

// batches renders rows, an End after each batch.
func batches(t *testing.T, o Options, all ...[]*row.Row) string {
	t.Helper()
	var b bytes.Buffer
	out, err := New("table", &b, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, rows := range all {
		for _, r := range rows {
			if err := out.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.End(row.End{Time: moment, Output: o.Interval, Last: i == len(all)-1}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Columns grow before a head is written, and not below it.
func TestTableGrows(t *testing.T) {
	s := life()
	s.Show = []int{3, 4, 5}
	short, long := fill(s, moment, 1, "x", four, 80, four), fill(s, moment, 1, "x", six, 80, four)
	const (
		narrowHead = "LADDR           LPORT RADDR\n"
		narrow     = "10.0.0.1           80 10.0.0.1\n"
		pushed     = "2001:db8:1234:5678:9abc:def0:1234:5678 80 10.0.0.1\n"
		wideHead   = "LADDR                                  LPORT RADDR\n"
		wideShort  = "10.0.0.1                                  80 10.0.0.1\n"
		wide       = "2001:db8:1234:5678:9abc:def0:1234:5678    80 10.0.0.1\n"
	)
	for _, c := range []struct {
		name string
		o    Options
		rows [][]*row.Row
		want string
	}{
		{"a batch is measured as a whole", Options{}, [][]*row.Row{{short, long, short}}, wideHead + wideShort + wide + wideShort},
		{"piped, widths are those of the first batch", Options{}, [][]*row.Row{{short}, {long, short}}, narrowHead + narrow + pushed + narrow},
		{"on a terminal the head is repeated", Options{Terminal: true, Height: 50}, [][]*row.Row{{short}, {short, long}, {short}}, narrowHead + narrow + wideHead + wideShort + wide + wideShort},
		{"each output is measured, and never shrinks", Options{Interval: true, Time: "none"}, [][]*row.Row{{short}, {long}, {short}},
			narrowHead + narrow + "\n" + wideHead + wide + "\n" + wideHead + wideShort},
	} {
		c.o.Schemas = []*row.Schema{s}
		if got := batches(t, c.o, c.rows...); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// A value of any length does not make a column of any width, and a long output
// does not wait in memory as a whole.
func TestTableGrowsWithinReason(t *testing.T) {
	s := life()
	s.Show = []int{2, 4}
	got := batches(t, Options{Schemas: []*row.Schema{s}}, []*row.Row{fill(s, moment, 1, strings.Repeat("y", 49), nil, 80), fill(s, moment, 1, strings.Repeat("z", 48), nil, 80)})
	if want := "COMM" + strings.Repeat(" ", 45) + "LPORT\n" + strings.Repeat("y", 49) + "   80\n" + strings.Repeat("z", 48) + "    80\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b bytes.Buffer
	out, err := New("table", &b, Options{Schemas: []*row.Schema{s}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * mostHeld {
		if err := out.Row(fill(s, moment, 1, "x", nil, 80)); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() == 0 {
		t.Error("nothing was written before the end of a long output")
	}
	if err := out.End(row.End{Output: true, Last: true}); err != nil || strings.Count(b.String(), "\n") != 1+3*mostHeld {
		t.Errorf("%d lines, error %v", strings.Count(b.String(), "\n"), err)
	}
}

// Network namespaces that have a name are shown by it.
func TestTableNetns(t *testing.T) {
	s := &row.Schema{Columns: []row.Column{{ID: "netns", Head: "NETNS", Kind: row.Uint, Width: 10}}, Show: []int{0}}
	o := Options{Schemas: []*row.Schema{s}, Netns: func(inode uint64) string { return map[uint64]string{4026532000: "blue"}[inode] }}
	rows := []*row.Row{fill(s, 4026532000), fill(s, 4026532001)}
	if got, want := string(render(t, "table", o, rows)), "     NETNS\n      blue\n4026532001\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(render(t, "csv", o, rows)); got != "netns\n4026532000\n4026532001\n" {
		t.Errorf("csv: %q: it has numbers", got)
	}
}

func TestTableViews(t *testing.T) {
	l, z, d := life(), sizes(), drops()
	l.Show, d.Show = []int{1}, []int{0}
	l.View = "sessions"
	rows := []*row.Row{fill(l, moment, 1), fill(l, moment, 2), fill(d, "x"), fill(z, moment, "h", "in", hist(0)), fill(l, moment, 3)}
	got := render(t, "table", Options{Schemas: []*row.Schema{l, z, d}}, rows)
	want := "    PID\n      1\n      2\n\nCOMM\nx\n\n" +
		"comm=h dir=in (bytes):\n[0]                     1 |" + strings.Repeat("@", 52) + "|\ncount 1, avg 0, min 0, max 0, p50 0, p90 0, p99 0\n\n" +
		"    PID\n      3\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTableNoStack: a sample outside of the kernel is said to be one, but not
// where its user stack is shown too, or none.
func TestTableNoStack(t *testing.T) {
	for _, c := range []struct {
		show []int
		want string
	}{
		{[]int{0, 3}, "COMM\ncurl\n    f+1\n\nperl\n    [user]\n\n"},
		{[]int{0, 3, 4}, "COMM\ncurl\n    f+1\n\nperl\n"},
		{[]int{0, 4}, "COMM\ncurl\nperl\n"},
		{[]int{0}, "COMM\ncurl\nperl\n"},
	} {
		s := drops()
		s.NoStack, s.Show = "[user]", c.show
		rows := []*row.Row{fill(s, "curl", nil, nil, &kern.Stack{Frames: []kern.Frame{{Sym: "f", Off: 1}}}), fill(s, "perl")}
		if got := render(t, "table", Options{Schemas: []*row.Schema{s}}, rows); string(got) != c.want {
			t.Errorf("columns %v: got %q, want %q", c.show, got, c.want)
		}
	}
}

func TestTableLine(t *testing.T) {
	s := life()
	s.Line = "{time} ping of {comm}, ID {pid}: {duration_ms} ms"
	rows := []*row.Row{fill(s, moment, 7, "pi\nng", nil, nil, nil, nil, nil, nil, 1500000), fill(s)}
	for form, want := range map[string]string{
		"":     "23:36:01 ping of pi\\nng, ID 7: 1.50 ms\n- ping of -, ID -: - ms\n",
		"none": "ping of pi\\nng, ID 7: 1.50 ms\n- ping of -, ID -: - ms\n",
	} {
		if got := render(t, "table", Options{Schemas: []*row.Schema{s}, Time: form}, rows); string(got) != want {
			t.Errorf("--time %s: got %q, want %q", form, got, want)
		}
	}
	columns, err := Choose("table", []*row.Schema{s}, "pid")
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, "table", Options{Schemas: []*row.Schema{s}, Columns: columns}, rows[:1]); string(got) != "    PID\n      7\n" {
		t.Errorf("with --columns: %q", got)
	}
	for _, bad := range []string{"{nope}", "{pid", "{}"} {
		s.Line = bad
		if _, err := New("table", io.Discard, Options{Schemas: []*row.Schema{s}}); err == nil {
			t.Errorf("line %q was taken", bad)
		}
	}
}

// Whatever comes in, a table has one line per row, only printable characters,
// no space at the end of a line, and no value cut.
func TestTableKeepsItsForm(t *testing.T) {
	s := life()
	s.Show = append(s.Show, 2) // names also at the end of the line
	s.Show = append(s.Show[:1], s.Show[2:]...)
	b := render(t, "table", Options{Schemas: []*row.Schema{s}}, append(hostileRows(s), lifeRows(s)...))
	if !utf8.Valid(b) {
		t.Error("not UTF-8")
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if want := 1 + len(hostile) + 5; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	for _, l := range lines {
		if strings.TrimRight(l, " ") != l {
			t.Errorf("space at the end of %q", l)
		}
		if i := strings.IndexFunc(l, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("character %q in %q", l[i:i+1], l)
		}
	}
	for _, whole := range []string{six.String(), strings.Repeat("long", 3000), "18014398509481983"} {
		if !strings.Contains(string(b), whole) {
			t.Errorf("%.40q is cut", whole)
		}
	}
}

// After a value that is too long the columns meet their places again.
func TestTableRecovers(t *testing.T) {
	s := life()
	s.Show = []int{1, 2, 3}
	b := render(t, "table", Options{Schemas: []*row.Schema{s}}, []*row.Row{fill(s, nil, 1234567890, "x", four), fill(s, nil, 1, "x", four)})
	lines := strings.Split(string(b), "\n")
	if a, b := strings.Index(lines[1], "10.0.0.1"), strings.Index(lines[2], "10.0.0.1"); a != b || a != strings.Index(lines[0], "LADDR") {
		t.Errorf("addresses at %d and %d:\n%s", a, b, strings.Join(lines, "\n"))
	}
}

func TestRanges(t *testing.T) {
	for _, tt := range []struct {
		lo, hi uint64
		want   string
	}{
		{0, 1, "[0]"}, {1, 2, "[1]"}, {2, 4, "[2, 4)"}, {512, 1024, "[512, 1K)"}, {1024, 2048, "[1K, 2K)"},
		{512 << 10, 1 << 20, "[512K, 1M)"}, {512 << 20, 1 << 30, "[512M, 1G)"}, {512 << 30, 1 << 40, "[512G, 1T)"},
	} {
		if got := string(appendRange(nil, tt.lo, tt.hi)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, uint64(7))
	}
	s := life()
	f.Fuzz(func(t *testing.T, comm string, n uint64) {
		b := render(t, "table", Options{Schemas: []*row.Schema{s}}, []*row.Row{fill(s, moment, n, comm, six)})
		if bytes.Count(b, []byte("\n")) != 2 || !utf8.Valid(b) || bytes.ContainsFunc(bytes.ReplaceAll(b, []byte("\n"), nil), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", b)
		}
	})
}
