// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"seine/internal/row"
)

func records(t *testing.T, b []byte) [][]string {
	t.Helper()
	all, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return all
}

// read is what encoding/csv makes of text: it turns \r\n into \n.
func read(s string) string { return strings.ReplaceAll(valid(s), "\r\n", "\n") }

func TestCSVStrings(t *testing.T) {
	s := life()
	got := records(t, render(t, "csv", Options{Schemas: []*row.Schema{s}}, hostileRows(s)))
	if !slices.Equal(got[0], s.IDs()) {
		t.Errorf("head %v, want %v", got[0], s.IDs())
	}
	if len(got) != len(hostile)+1 {
		t.Fatalf("%d records for %d rows", len(got)-1, len(hostile))
	}
	for i, h := range hostile {
		if want := read(h); got[i+1][2] != want {
			t.Errorf("got %q, want %q", got[i+1][2], want)
		}
	}
}

func TestCSVQuotes(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a b": "a b", "=1+1": "=1+1", "a,b": `"a,b"`, `a"b`: `"a""b"`, "a\nb": "\"a\nb\"", "a\r": "\"a\r\"", "": "",
	} {
		if got := string(appendCSV(nil, text)); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestCSVViews(t *testing.T) {
	a, b := drops(), life()
	b.View = "sessions"
	_, err := New("csv", io.Discard, Options{Schemas: []*row.Schema{a, b}})
	if want := "csv holds one kind of row: choose with --view drops or sessions"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	out, err := New("csv", io.Discard, Options{Schemas: []*row.Schema{a}})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Row(b.New()); err == nil {
		t.Error("a row of another view was taken")
	}
	if _, err := New("csv", io.Discard, Options{}); err == nil {
		t.Error("no schema, no head: must be refused")
	}
}

func TestCSVEmptyField(t *testing.T) {
	s := life()
	columns, err := Choose("csv", []*row.Schema{s}, "comm")
	if err != nil {
		t.Fatal(err)
	}
	b := render(t, "csv", Options{Schemas: []*row.Schema{s}, Columns: columns}, []*row.Row{s.New(), fill(s, nil, nil, "x"), s.New()})
	if got := records(t, b); len(got) != 4 {
		t.Errorf("read %d records of %q, want 4", len(got), b)
	}
}

// The head is there before, and without, any row.
func TestCSVHeadWithoutRows(t *testing.T) {
	z := sizes()
	if got := string(render(t, "csv", Options{Schemas: []*row.Schema{z}}, nil)); got != "time,comm,dir,lo,hi,count\n" {
		t.Errorf("got %q", got)
	}
	columns, err := Choose("csv", []*row.Schema{z}, "size")
	if err != nil {
		t.Fatal(err)
	}
	got := string(render(t, "csv", Options{Schemas: []*row.Schema{z}, Columns: columns}, sizeRows(z)[:1]))
	if got != "lo,hi,count\n32,64,1\n" {
		t.Errorf("got %q", got)
	}
}

func FuzzCSV(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, "x")
	}
	f.Add("", "")
	s := drops()
	f.Fuzz(func(t *testing.T, comm, reason string) {
		b := render(t, "csv", Options{Schemas: []*row.Schema{s}}, []*row.Row{fill(s, comm, reason, 7), fill(s, reason)})
		if !utf8.Valid(b) {
			t.Fatalf("not UTF-8: %q", b)
		}
		got := records(t, b)
		want := [][]string{s.IDs(), {read(comm), read(reason), "7", "", ""}, {read(reason), "", "", "", ""}}
		if len(got) != 3 || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
