// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"seine/internal/row"
)

func ids(s *row.Schema, columns []int) string {
	var w []string
	for _, i := range columns {
		w = append(w, s.Columns[i].ID)
	}
	return strings.Join(w, " ")
}

func TestParseColumns(t *testing.T) {
	s := life()
	s.Show = []int{1, 2, 3}
	for _, tt := range []struct{ spec, want string }{
		{"comm", "comm"},
		{"rport,pid,comm", "rport pid comm"},
		{" rport , pid ", "rport pid"},
		{"+rport", "pid comm laddr rport"},
		{"-pid", "comm laddr"},
		{"+rport,-comm,+lport", "pid laddr rport lport"},
		{"+rport,lport", "pid comm laddr rport lport"}, // the sign holds on
		{"+pid", "pid comm laddr"},                     // is there already
		{"-rport", "pid comm laddr"},                   // is not there
	} {
		got, err := ParseColumns(s, tt.spec)
		if err != nil || ids(s, got) != tt.want {
			t.Errorf("%s: got %s, error %v; want %s", tt.spec, ids(s, got), err, tt.want)
		}
	}
	for _, tt := range []struct{ spec, want string }{
		{"com", `columns: unknown column "com": did you mean comm? (--columns help lists them)`},
		{"+com", `columns: unknown column "com": did you mean comm? (--columns help lists them)`},
		{"TX_KB", `columns: unknown column "TX_KB": did you mean tx_bytes? (--columns help lists them)`},
		{"xyzzy", `columns: unknown column "xyzzy" (--columns help lists them)`},
		{"pid,+comm", `columns: "pid,+comm" mixes two forms: either a,b,c or +a,-b`},
		{"pid,,comm", `columns: "pid,,comm" names no column between two commas`},
		{"", `columns: "" names no column between two commas`},
		{"+", `columns: "+" names no column between two commas`},
		{"++pid", `columns: "++pid": one sign is enough`},
		{"pid,pid", `columns: pid twice`},
		{"-pid,-comm,-laddr", `columns: none left`},
	} {
		if got, err := ParseColumns(s, tt.spec); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %v, error %v; want %s", tt.spec, got, err, tt.want)
		}
	}
	if ids(s, s.Show) != "pid comm laddr" {
		t.Error("the schema was changed")
	}
}

func TestColumnsByFormat(t *testing.T) {
	s := life()
	s.Show = []int{1, 2}
	for _, tt := range []struct {
		format, spec string
		want         int
	}{
		{"table", "", 2}, {"table", "+rport", 3}, {"json", "", 12}, {"json", "-pid", 11}, {"csv", "+pid", 12}, {"csv", "pid", 1},
	} {
		got, err := Columns(tt.format, s, tt.spec)
		if err != nil || len(got) != tt.want {
			t.Errorf("%s of %s: %d columns, error %v; want %d", tt.spec, tt.format, len(got), err, tt.want)
		}
	}
}

func TestIdleColumns(t *testing.T) {
	s := life()
	s.Columns[s.Index("pid")].Idle = true
	for _, format := range []string{"csv", "json"} {
		got, err := Columns(format, s, "")
		if err != nil || len(got) != 11 || slices.Contains(got, s.Index("pid")) {
			t.Errorf("%s writes %s, error %v; want all but pid, which is not counted by", format, ids(s, got), err)
		}
	}
}

func TestChooseAmongViews(t *testing.T) {
	l, d := life(), drops()
	both := []*row.Schema{l, d}
	got, err := Choose("table", both, "comm,reason,pid")
	if err != nil || ids(l, got[l]) != "comm pid" || ids(d, got[d]) != "comm reason" {
		t.Errorf("got %s and %s, error %v", ids(l, got[l]), ids(d, got[d]), err)
	}
	if got, err = Choose("table", both, "reason"); err != nil || got[l] != nil || ids(d, got[d]) != "reason" {
		t.Errorf("got %v, error %v; want the first view as it was", got, err)
	}
	l.Columns[l.Index("tx_bytes")].Sum = true
	if got, err = Choose("table", both, "tx_bytes,reason"); err != nil || got[l] == nil || len(got[l]) > 0 || ids(d, got[d]) != "reason" {
		t.Errorf("got %v, error %v; want no bytes of nobody", got, err)
	}
	if got, err = Choose("table", []*row.Schema{l}, "tx_bytes"); err != nil || ids(l, got[l]) != "tx_bytes" {
		t.Errorf("got %v, error %v; want what was asked for", got, err)
	}
	if got, err = Choose("table", both, ""); err != nil || got != nil {
		t.Errorf("no --columns gives %v, error %v", got, err)
	}
	if _, err = Choose("table", both, "reasn"); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("got %v, want a hint at reason", err)
	}
}

func TestHelpColumns(t *testing.T) {
	var b bytes.Buffer
	d := drops()
	d.Columns[1].Help = "why"
	said := life()
	said.View, said.Line = "said", "{comm} to {raddr}"
	if err := HelpColumns(&b, life(), sizes(), d, said); err != nil {
		t.Fatal(err)
	}
	golden(t, "columns.help", b.Bytes())
}

func FuzzColumns(f *testing.F) {
	for _, s := range []string{"a,b", "+pid,-comm", "pid,", "--pid", ",", "+", "help", "comm,rport,comm", "é"} {
		f.Add(s)
	}
	s := life()
	f.Fuzz(func(t *testing.T, spec string) {
		got, err := ParseColumns(s, spec)
		if (err == nil) != (len(got) > 0) {
			t.Fatalf("%q: %v, error %v", spec, got, err)
		}
		sorted := slices.Sorted(slices.Values(got))
		if len(slices.Compact(sorted)) != len(got) || err == nil && (sorted[0] < 0 || sorted[len(sorted)-1] >= len(s.Columns)) {
			t.Errorf("%q: %v", spec, got)
		}
		chosen, err2 := Choose("table", []*row.Schema{s}, spec)
		if spec != "" && ((err == nil) != (err2 == nil) || !slices.Equal(chosen[s], got)) {
			t.Errorf("%q: Choose gives %v, error %v; ParseColumns %v, error %v", spec, chosen[s], err2, got, err)
		}
	})
}
