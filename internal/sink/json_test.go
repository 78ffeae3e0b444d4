// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"seine/internal/row"
)

// objects reads lines of JSON, numbers as they are written.
func objects(t *testing.T, b []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range bytes.Lines(b) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		m := map[string]any{}
		if err := d.Decode(&m); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if d.More() {
			t.Fatalf("more than an object in %q", line)
		}
		all = append(all, m)
	}
	return all
}

func TestJSONStrings(t *testing.T) {
	s := life()
	got := objects(t, render(t, "json", Options{Schemas: []*row.Schema{s}}, hostileRows(s)))
	if len(got) != len(hostile) {
		t.Fatalf("got %d lines for %d rows", len(got), len(hostile))
	}
	for i, h := range hostile {
		if want := valid(h); got[i]["comm"] != want {
			t.Errorf("got %q, want %q", got[i]["comm"], want)
		}
	}
}

// valid replaces each wrong byte, as JSON and CSV must.
func valid(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		n      uint64
		kind   row.Kind
		div    uint64
		scale  uint64
		prec   int
		json   string
		table0 string
	}{
		{0, row.Uint, 1, 1, 0, "0", "0"},
		{12345, row.Uint, 1000, 1, 0, "12.345", "12"},
		{12345, row.Uint, 1000, 1, 2, "12.345", "12.35"}, // rounded half up
		{12300, row.Uint, 1000, 1, 2, "12.3", "12.30"},
		{999999, row.Uint, 1000, 1, 2, "999.999", "1000.00"},
		{5, row.Uint, 1000, 1, 2, "0.005", "0.01"},
		{4, row.Uint, 1000, 1, 2, "0.004", "0.00"},
		{1, row.Uint, 1e9, 1, 3, "0.000000001", "0.000"},
		{1536, row.Uint, 1, 1024, 0, "1536", "1"},
		{1536, row.Uint, 1, 1024, 1, "1536", "1.5"},
		{1, row.Uint, 1024, 1, 0, "0.0009765625", "0"},
		{1, row.Uint, 3, 1, 3, "0.33333333333333333333", "0.333"},
		{math.MaxUint64, row.Uint, 1, 1, 0, "18446744073709551615", "18446744073709551615"},
		{math.MaxUint64, row.Uint, 1000, 1, 3, "18446744073709551.615", "18446744073709551.615"},
		{math.MaxUint64, row.Uint, 1e9, 1, 6, "18446744073.709551615", "18446744073.709552"},
		{math.MaxUint64, row.Uint, math.MaxUint64, 1, 2, "1", "1.00"},
		{math.MaxUint64 - 1, row.Uint, math.MaxUint64, 1, 2, "0.99999999999999999994", "1.00"},
		{math.MaxUint64, row.Int, 1, 1, 0, "-1", "-1"},
		{1 << 63, row.Int, 1000, 1, 1, "-9223372036854775.808", "-9223372036854775.8"},
		{negative(1500), row.Int, 1000, 1, 0, "-1.5", "-1"},
	} {
		c := row.Cell{Kind: tt.kind, N: tt.n}
		if got := string(appendNumber(nil, &c, tt.div)); got != tt.json {
			t.Errorf("%d/%d: got %s, want %s", tt.n, tt.div, got, tt.json)
		}
		if got := string(appendScaled(nil, &c, tt.div*tt.scale, tt.prec)); got != tt.table0 {
			t.Errorf("%d/%d/%d with %d decimals: got %s, want %s", tt.n, tt.div, tt.scale, tt.prec, got, tt.table0)
		}
	}
}

func negative(n int64) uint64 { return uint64(-n) }

// No digit of any number is lost: what is read back times Div is the raw value.
func FuzzNumber(f *testing.F) {
	f.Add(uint64(12345), uint8(3), false)
	f.Add(uint64(math.MaxUint64), uint8(9), true)
	f.Fuzz(func(t *testing.T, n uint64, zeros uint8, signed bool) {
		div := uint64(math.Pow10(int(zeros % 19)))
		c := row.Cell{Kind: row.Uint, N: n}
		raw := new(big.Int).SetUint64(n)
		if signed {
			c.Kind = row.Int
			raw.SetInt64(int64(n))
		}
		text := appendNumber(nil, &c, div)
		if !json.Valid(text) {
			t.Fatalf("%s is no JSON number", text)
		}
		got, ok := new(big.Rat).SetString(string(text))
		want := new(big.Rat).SetFrac(raw, new(big.Int).SetUint64(div))
		if !ok || got.Cmp(want) != 0 {
			t.Errorf("%d/%d: got %s, want %s", n, div, text, want)
		}
		for prec := range 4 {
			table := appendScaled(nil, &c, div, prec)
			shown, ok := new(big.Rat).SetString(string(table))
			if !ok {
				t.Fatalf("%s is no number", table)
			}
			off := new(big.Rat).Sub(shown, want)
			if off.Abs(off).Cmp(big.NewRat(1, int64(math.Pow10(prec)))) >= 0 {
				t.Errorf("%d/%d with %d decimals: got %s", n, div, prec, table)
			}
		}
	})
}

func TestJSONChosenColumns(t *testing.T) {
	s := life()
	columns, err := Choose("json", []*row.Schema{s}, "rport,comm")
	if err != nil {
		t.Fatal(err)
	}
	got := render(t, "json", Options{Schemas: []*row.Schema{s}, Columns: columns}, lifeRows(s)[:1])
	want := `{"time":"2026-11-14T23:36:01.123456789Z","tool":"tcplife","rport":443,"comm":"curl"}` + "\n"
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	columns, err = Choose("json", []*row.Schema{s}, "-comm")
	if err != nil {
		t.Fatal(err)
	}
	m := objects(t, render(t, "json", Options{Schemas: []*row.Schema{s}, Columns: columns}, lifeRows(s)[:1]))[0]
	if len(m) != len(s.Columns) || m["comm"] != nil { // less comm, plus tool
		t.Errorf("-comm gives %v", m)
	}
}

func TestJSONTime(t *testing.T) {
	s := life()
	for _, at := range []time.Time{moment, time.Unix(0, 1), time.Unix(1, 0), time.Unix(0, -1), time.Unix(-5, 7)} {
		m := objects(t, render(t, "json", Options{}, []*row.Row{fill(s, at)}))[0]
		if want := at.UTC().Format("2006-01-02T15:04:05.000000000Z07:00"); m["time"] != want {
			t.Errorf("got %s, want %s", m["time"], want)
		}
	}
}

// A column is of one type in every row: text that a Namer left as a number.
func TestJSONKeepsTheType(t *testing.T) {
	s := life()
	r := s.New()
	r.Get("comm").SetUint(1000)
	m := objects(t, render(t, "json", Options{}, []*row.Row{r}))[0]
	if m["comm"] != "1000" {
		t.Errorf("got %v, want text", m["comm"])
	}
}

func FuzzJSON(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, h, uint64(1), int64(-1))
	}
	s := life()
	s.View = "v"
	f.Fuzz(func(t *testing.T, comm, tool string, n uint64, i int64) {
		x := *s
		x.Tool = tool
		r := fill(&x, moment, n, comm, four, 1, six, 2, n, n, n, true, int(i))
		b := render(t, "json", Options{Schemas: []*row.Schema{&x}}, []*row.Row{r})
		if !utf8.Valid(b) || bytes.Count(b, []byte("\n")) != 1 {
			t.Fatalf("not one line of UTF-8: %q", b)
		}
		m := objects(t, b)[0]
		if m["comm"] != valid(comm) || m["tool"] != valid(tool) {
			t.Errorf("got %q, %q; want %q, %q", m["comm"], m["tool"], valid(comm), valid(tool))
		}
		if got, _ := new(big.Int).SetString(m["pid"].(json.Number).String(), 10); !got.IsUint64() || got.Uint64() != n {
			t.Errorf("pid %v, want %d", m["pid"], n)
		}
	})
}

// TestJSONLosses: what was lost is an object of its own; other formats have
// nothing to say of it.
func TestJSONLosses(t *testing.T) {
	s := life()
	for format, want := range map[string]string{
		"json": `{"time":"2026-11-16T08:00:00.000000001Z","tool":"tcplife","losses":{"ring_full":3,"skipped":1}}` + "\n",
		"csv":  "",
	} {
		var b bytes.Buffer
		out, err := New(format, &b, Options{Schemas: []*row.Schema{s}})
		if err != nil {
			t.Fatal(err)
		}
		if err := out.End(row.End{}); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		at := time.Date(2026, 11, 16, 8, 0, 0, 1, time.UTC)
		if err := out.End(row.End{Time: at, Tool: "tcplife", Losses: []row.Loss{{Kind: "ring_full", N: 3}, {Kind: "skipped", N: 1}}}); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: got %q, want %q", format, b.String(), want)
		}
	}
}
