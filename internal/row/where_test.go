// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"seine/internal/row"
)

func unsafeString(b []byte) string { return unsafe.String(&b[0], len(b)) }

func TestWhere(t *testing.T) {
	s := sample()
	full := rowOf(t, s, map[string]any{
		"time": time.Date(2026, 11, 14, 23, 36, 1, 0, time.UTC), "pid": 4218, "comm": "nginx",
		"raddr": netip.MustParseAddr("10.0.0.1"), "tx_bytes": 2048, "latency_us": 1500250, // ns
		"failed": true, "errno": -111, "cgroup": 77,
	})
	six := rowOf(t, s, map[string]any{"raddr": netip.MustParseAddr("2001:db8::1"), "tx_bytes": math.MaxInt64})
	six.Get("tx_bytes").SetUint(math.MaxUint64)
	none := s.New()
	for _, tt := range []struct {
		expr            string
		full, six, none bool
	}{
		{`true`, true, true, true},
		{`pid == 4218`, true, false, false},
		{`pid != 4218`, false, false, false}, // absent is not unequal
		{`not (pid == 1)`, true, false, false},
		{`!(pid == 4218)`, false, false, false},
		{`pid in [1, 4218]`, true, false, false},
		{`pid not in [1, 2]`, true, false, false},
		{`pid in 4000..5000`, true, false, false},
		{`latency_us > 1000 && comm == "nginx"`, true, false, false},
		{`latency_us == 1500.25`, true, false, false},
		{`latency_us > 1500.25`, false, false, false},
		{`latency_us > 1000 || tx_bytes > 0`, true, true, false},
		{`!(latency_us > 1000 || tx_bytes > 0)`, false, false, false},
		{`!(latency_us > 9999999 && tx_bytes > 0)`, true, false, false}, // six: unknown and true is unknown
		{`!(latency_us > 1000 && tx_bytes < 0)`, true, true, false},     // six: unknown and false is false
		{`tx_bytes > 0`, true, true, false},
		{`raddr == "10.0.0.1"`, true, false, false},
		{`raddr == "::ffff:10.0.0.1"`, true, false, false},
		{`raddr == "2001:DB8:0::1"`, false, true, false},
		{`raddr in ["::1", "2001:db8:0:0:0:0:0:1"]`, false, true, false},
		{`raddr startsWith "2001:"`, false, true, false},
		{`comm matches "^ng"`, true, false, false},
		{`comm contains "gin"`, true, false, false},
		{`len(comm) == 5`, true, false, false},
		{`upper(comm) == "NGINX"`, true, false, false},
		{`failed`, true, false, false},
		{`!failed`, false, false, false},
		{`failed == true`, true, false, false},
		{`errno == -111`, true, false, false},
		{`errno < 0`, true, false, false},
		{`time > date("2026-11-14T23:36:00Z")`, true, false, false},
		{`cgroup == "77"`, true, false, false}, // not named yet: text all the same
		{`pid == nil`, false, true, true},
		{`nil != pid`, true, false, false},
		{`!(pid == nil)`, true, false, false},
		{`pid == nil || pid > 5`, true, true, true},
		{`(pid ?? 0) == 0`, false, true, true},
		{`(latency_us ?? 3) + (pid ?? 1) > 4000`, true, false, false},
		{`(pid > 4000 ? tx_bytes : 1) > 1`, true, false, false},
		{`let k = tx_bytes / 1024; k == 2`, true, false, false},
		{`any([pid], # > 1)`, true, false, false},
		{`1 < pid && pid < 5000`, true, false, false},
	} {
		t.Run(tt.expr, func(t *testing.T) {
			for name, one := range map[string]struct {
				r    *row.Row
				want bool
			}{"full": {full, tt.full}, "six": {six, tt.six}, "none": {none, tt.none}} {
				var got row.Collect
				f, err := row.Where(&got, tt.expr, []*row.Schema{s})
				if err != nil {
					t.Fatal(err)
				}
				feed(t, f, one.r)
				if kept := len(got.Rows) == 1; kept != one.want {
					t.Errorf("row %s: kept %t, want %t", name, kept, one.want)
				}
			}
		})
	}
}

func TestWhereErrors(t *testing.T) {
	s := sample()
	s.Columns = append(s.Columns, row.Column{ID: "idle", Kind: row.Uint, Key: true, Idle: true})
	for _, tt := range []struct{ expr, want string }{
		{`latncy_us > 5`, `where: character 1: unknown column "latncy_us": did you mean latency_us? (--columns help lists them)`},
		{`pid > 1 && daddr == "x"`, `where: character 12: unknown column "daddr": did you mean raddr? (--columns help lists them)`},
		{`qqqqqqqqqq`, `where: character 1: unknown column "qqqqqqqqqq" (--columns help lists them)`},
		{`pid >`, `where: character 5: the expression ends too early`},
		{``, `where: character 1: the expression ends too early`},
		{`pid + 1`, `where: the expression is not a condition: expected bool, but got int`},
		{`pid`, `where: the expression is not a condition: expected bool, but got int`},
		{`comm > 5`, `where: character 6: invalid operation: > (mismatched types string and int)`},
		{`comm matches "("`, "where: character 6: error parsing regexp: missing closing ): `(`"},
		{`stack == "x"`, `where: character 1: column stack is a whole object, not a value to compare`},
		{`count > 5`, `where: character 1: rows have no count: --where tests them before --by counts them`},
		{`len > 5`, `where: character 1: unknown column "len" (--columns help lists them)`},
		{`comm =~ "x"`, `where: character 6: patterns are tested by the word matches: comm matches "^ng"`},
		{`comm = "x"`, `where: character 6: equal is written ==`},
		{`raddr in "10.0.0.0/8"`, `where: character 7: in takes a list: ["a", "b"]; networks are for --addr, --laddr, --raddr`},
		{`pid == 1 || raddr == "10.0.0.0/8"`, `where: character 22: "10.0.0.0/8" is not a valid address; networks are for --addr, --laddr, --raddr`},
		{`raddr not in ["::1", "x"]`, `where: character 22: "x" is not a valid address; networks are for --addr, --laddr, --raddr`},
		{`raddr == "fe80::1%eth0"`, `where: character 10: "fe80::1%eth0" is not a valid address; networks are for --addr, --laddr, --raddr`},
		{`"systemd-resolved" != comm`, `where: character 1: the kernel keeps 15 bytes of a name: "systemd-resolve"`},
		{`idle == 5`, `where: character 1: rows have no idle unless --by names it`},
		{`$env.pid > 5`, `where: $env is not for expressions: name a column`},
	} {
		_, err := row.Where(nil, tt.expr, []*row.Schema{s})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.expr, err, tt.want)
		}
	}
}

// What only shows with a row ends the run with one line too.
func TestWhereFailsOnARow(t *testing.T) {
	s := sample()
	f, err := row.Where(&row.Collect{}, `split(comm, "/")[5] == "x"`, []*row.Schema{s})
	if err != nil {
		t.Fatal(err)
	}
	err = f.Row(rowOf(t, s, map[string]any{"comm": "a"}))
	if err == nil || !strings.HasPrefix(err.Error(), "where: character ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, want one line that names the place", err)
	}
	if err := f.Row(s.New()); err != nil {
		t.Errorf("an absent value is never looked at: %v", err)
	}
}

func TestWhereOfSeveralViews(t *testing.T) {
	s, h := sample(), histSchema()
	var got row.Collect
	f, err := row.Where(&got, `pid == 5 || p99 > 100`, []*row.Schema{s, h})
	if err != nil {
		t.Fatal(err)
	}
	feed(t, f,
		rowOf(t, s, map[string]any{"pid": 5}),
		rowOf(t, s, map[string]any{"pid": 6}),
		rowOf(t, h, map[string]any{"size": histOf(1, 2)}),
		rowOf(t, h, map[string]any{"size": histOf(1000, 2000)}),
		rowOf(t, h, map[string]any{"size": histOf()}))
	if len(got.Rows) != 2 || got.Rows[0].Schema != s || got.Rows[1].Schema != h {
		t.Errorf("kept %d rows, want one of each view", len(got.Rows))
	}
	if u := f.Uses(); len(u) != 2 || u[0] != "pid" || u[1] != "p99" {
		t.Errorf("uses %v, want pid and p99", u)
	}
	// A column that only the other view has is absent, whatever stands in its place.
	got = row.Collect{}
	if f, err = row.Where(&got, `errno == nil && tx_bytes == nil`, []*row.Schema{s, h}); err != nil {
		t.Fatal(err)
	}
	feed(t, f, rowOf(t, s, map[string]any{"errno": 1}), rowOf(t, h, map[string]any{"comm": "x"}))
	if len(got.Rows) != 1 || got.Rows[0].Schema != h {
		t.Errorf("kept %d rows, want that of the other view", len(got.Rows))
	}
	if _, err := row.Where(nil, "nowhere > 1", []*row.Schema{s, h}); err == nil {
		t.Error("a column of no view was taken")
	}
}

func FuzzWhere(f *testing.F) {
	for _, e := range []string{`pid > 5 && comm == "x"`, `!(latency_us ?? 1 > 2)`, `raddr in ["a"]`, `time > now()`, `let x = pid; x == 1`,
		`pid == nil`, `any([1,2], # > pid)`, `$env`, `comm[1:2] == "a"`, "pid >\n5", `1..pid == nil`, `comm matches comm`} {
		f.Add(e, "nginx")
	}
	s := sample()
	f.Fuzz(func(t *testing.T, expression, comm string) {
		w, err := row.Where(&row.Collect{}, expression, []*row.Schema{s})
		if err == nil {
			full := rowOf(t, s, map[string]any{"pid": 1, "comm": comm, "latency_us": 5, "failed": true, "raddr": netip.MustParseAddr("::1")})
			for _, r := range []*row.Row{s.New(), full} {
				if err = w.Row(r); err != nil {
					break
				}
			}
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "where: ")) {
			t.Errorf("%q: error %q", expression, err)
		}
	})
}

func BenchmarkWhere(b *testing.B) {
	s := sample()
	f, err := row.Where(drop{}, `latency_us > 1000 && comm == "nginx"`, []*row.Schema{s})
	if err != nil {
		b.Fatal(err)
	}
	r := rowOf(b, s, map[string]any{"comm": "nginx", "latency_us": 1500000})
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Row(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBy(b *testing.B) {
	s := sample()
	g, err := row.By(drop{}, []string{"comm", "raddr"}, s)
	if err != nil {
		b.Fatal(err)
	}
	r := rowOf(b, s, map[string]any{"comm": "nginx", "raddr": netip.MustParseAddr("::1"), "tx_bytes": 7})
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Row(r); err != nil {
			b.Fatal(err)
		}
	}
}

type drop struct{}

func (drop) Row(*row.Row) error { return nil }
func (drop) End(row.End) error  { return nil }
