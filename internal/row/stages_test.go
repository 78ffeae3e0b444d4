// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// The schema of most tests here: one column of each kind.
func sample() *row.Schema {
	return &row.Schema{Tool: "sample", Show: []int{1, 2, 3, 4, 5}, Columns: []row.Column{
		{ID: "time", Head: "TIME", Kind: row.Time, Div: 1, Scale: 1, Left: true},
		{ID: "pid", Head: "PID", Kind: row.Uint, Div: 1, Scale: 1},
		{ID: "comm", Head: "PROCESS", Kind: row.Text, Div: 1, Scale: 1, Left: true, Most: 15},
		{ID: "raddr", Head: "DADDR", Kind: row.Addr, Div: 1, Scale: 1, Left: true},
		{ID: "tx_bytes", Head: "TX_KB", Kind: row.Uint, Div: 1, Scale: 1024, Sum: true},
		{ID: "latency_us", Head: "LAT(us)", Kind: row.Uint, Div: 1000, Scale: 1},
		{ID: "failed", Head: "FAILED", Kind: row.Bool, Div: 1, Scale: 1},
		{ID: "errno", Head: "ERRNO", Kind: row.Int, Div: 1, Scale: 1},
		{ID: "rx_bytes", Head: "RX_KB", Kind: row.Uint, Div: 1, Scale: 1024, Sum: true},
		{ID: "cgroup", Head: "CGROUP", Kind: row.Text, Div: 1, Scale: 1, Left: true, As: "cgroup"},
		{ID: "stack", Head: "STACK", Kind: row.Object, Div: 1, Scale: 1, Left: true},
	}}
}

func addr(s string) string { a := netip.MustParseAddr(s).As16(); return string(a[:]) }

// rowOf fills a row from values by id: int, string, bool, time, address, object.
func rowOf(t testing.TB, s *row.Schema, values map[string]any) *row.Row {
	t.Helper()
	r := s.New()
	for id, v := range values {
		c := r.Get(id)
		if c == nil {
			t.Fatalf("no column %s", id)
		}
		switch v := v.(type) {
		case int:
			if c.SetUint(uint64(v)); v < 0 {
				c.SetInt(int64(v))
			}
		case string:
			c.SetText(v)
		case bool:
			if *c = (row.Cell{Kind: row.Bool}); v {
				c.N = 1
			}
		case time.Time:
			*c = row.Cell{Kind: row.Time, N: uint64(v.UnixNano())}
		case netip.Addr:
			*c = row.Cell{Kind: row.Addr, S: addr(v.String())}
		default:
			*c = row.Cell{Kind: row.Object, Ref: v}
		}
	}
	return r
}

// words renders the cells of the columns, in order, for comparing.
func words(r *row.Row, ids ...string) string {
	var out []string
	for _, id := range ids {
		c := r.Get(id)
		switch c.Kind {
		case row.Null:
			out = append(out, "-")
		case row.Int:
			out = append(out, fmt.Sprint(int64(c.N)))
		case row.Text:
			out = append(out, c.S)
		case row.Addr:
			out = append(out, c.IP().String())
		default:
			out = append(out, fmt.Sprint(c.N))
		}
	}
	return strings.Join(out, " ")
}

func feed(t *testing.T, s row.Sink, rows ...*row.Row) {
	t.Helper()
	for _, r := range rows {
		if err := s.Row(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestName(t *testing.T) {
	s := sample()
	namers := map[string]row.Namer{"cgroup": func(_ *row.Row, c *row.Cell) { c.SetText(fmt.Sprintf("/group/%d", c.N)) }}
	for _, tt := range []struct {
		name string
		use  map[string]bool
		cell any
		want string
	}{
		{"all", nil, 7, "/group/7"},
		{"in use", map[string]bool{"cgroup": true}, 7, "/group/7"},
		{"not in use", map[string]bool{"pid": true}, 7, "7"},
		{"absent", nil, nil, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got row.Collect
			r := s.New()
			if tt.cell != nil {
				r = rowOf(t, s, map[string]any{"cgroup": tt.cell})
			}
			feed(t, row.Name(&got, tt.use, namers), r)
			if w := words(got.Rows[0], "cgroup"); w != tt.want {
				t.Errorf("got %q, want %q", w, tt.want)
			}
		})
	}
	err := row.Name(&row.Collect{}, nil, nil).Row(s.New())
	if want := `sample: column cgroup: no namer "cgroup"`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if err := row.Name(&row.Collect{}, map[string]bool{}, nil).Row(s.New()); err != nil {
		t.Errorf("a namer that nobody needs is missing: %v", err)
	}
}

func TestBy(t *testing.T) {
	s := sample()
	var got row.Collect
	g, err := row.By(&got, []string{"comm", "raddr"}, s)
	if err != nil {
		t.Fatal(err)
	}
	if ids := strings.Join(g.Schema().IDs(), " "); ids != "time comm raddr count tx_bytes rx_bytes" {
		t.Errorf("got columns %s", ids)
	}
	var show []string
	for _, i := range g.Schema().Show {
		show = append(show, g.Schema().Columns[i].ID)
	}
	if w := strings.Join(show, " "); w != "comm raddr count tx_bytes" { // rx_bytes was hidden before
		t.Errorf("shows %s", w)
	}
	if u := strings.Join(g.Uses(), " "); u != "comm raddr" {
		t.Errorf("uses %s", u)
	}
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::2")
	for i := range 23 {
		feed(t, g, rowOf(t, s, map[string]any{"comm": "curl", "raddr": one, "tx_bytes": i}))
	}
	feed(t, g,
		rowOf(t, s, map[string]any{"comm": "curl", "raddr": two, "rx_bytes": 5}),
		rowOf(t, s, map[string]any{"raddr": two}),
		rowOf(t, s, map[string]any{"comm": "", "raddr": two})) // empty is not absent
	if err := g.End(row.End{}); err != nil || len(got.Rows)+len(got.Ends) > 0 {
		t.Fatalf("a batch's end gave %d rows, error %v", len(got.Rows), err)
	}
	tick := time.Unix(1700000000, 5)
	if err := g.End(row.End{Time: tick, Output: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"curl 10.0.0.1 23 253 -",
		"curl 2001:db8::2 1 - 5",
		"- 2001:db8::2 1 - -",
		" 2001:db8::2 1 - -",
	}
	for i, r := range got.Rows {
		if w := words(r, "comm", "raddr", "count", "tx_bytes", "rx_bytes"); i >= len(want) || w != want[i] {
			t.Errorf("row %d: got %q", i, w)
		}
		if c := r.Get("time"); c.Kind != row.Time || c.N != uint64(tick.UnixNano()) {
			t.Errorf("row %d: time %v, want the tick's end", i, c)
		}
	}
	if len(got.Rows) != len(want) || len(got.Ends) != 1 || !got.Ends[0].Output {
		t.Fatalf("got %d rows, ends %v", len(got.Rows), got.Ends)
	}

	got = row.Collect{} // the next output starts from nothing
	feed(t, g, rowOf(t, s, map[string]any{"comm": "curl", "raddr": one, "tx_bytes": 4}))
	if err := g.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 1 || words(got.Rows[0], "count", "tx_bytes") != "1 4" {
		t.Errorf("second output: %d rows", len(got.Rows))
	}
	if !got.Ends[0].Output || !got.Ends[0].Last || got.Ends[0].Time.IsZero() {
		t.Errorf("the last end is %+v, want a timed output", got.Ends[0])
	}
}

func TestByKeepsNegativeSums(t *testing.T) {
	s := sample()
	s.Columns[s.Index("errno")].Sum = true
	var got row.Collect
	g, err := row.By(&got, []string{"comm"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-3, -4} {
		feed(t, g, rowOf(t, s, map[string]any{"comm": "a", "errno": n}))
	}
	if err := g.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	if w := words(got.Rows[0], "errno"); w != "-7" {
		t.Errorf("got sum %s, want -7", w)
	}
}

// A row that is itself a count is worth that many.
func TestByAddsCounts(t *testing.T) {
	s := &row.Schema{Tool: "t", Columns: []row.Column{
		{ID: "comm", Kind: row.Text, Div: 1}, {ID: "count", Kind: row.Uint, Div: 1, Sum: true}}}
	var got row.Collect
	g, err := row.By(&got, []string{"comm"}, s)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, g, rowOf(t, s, map[string]any{"comm": "a", "count": 5}), rowOf(t, s, map[string]any{"comm": "a", "count": 6}))
	if err := g.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	if w := words(got.Rows[0], "comm", "count"); w != "a 11" {
		t.Errorf("got %q, want a 11", w)
	}
	if n := len(g.Schema().Columns); n != 3 {
		t.Errorf("%d columns, want time, comm and one count", n)
	}
}

func TestByRefusesBeyondItsBound(t *testing.T) {
	s := sample()
	var got row.Collect
	g, err := row.By(&got, []string{"pid"}, s)
	if err != nil {
		t.Fatal(err)
	}
	r := s.New()
	for i := range row.MaxGroups + 23 {
		r.Get("pid").SetUint(uint64(i))
		feed(t, g, r)
	}
	r.Get("pid").SetUint(0) // known groups still count
	feed(t, g, r)
	if err := g.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != row.MaxGroups || g.Refused() != 23 {
		t.Errorf("got %d groups, %d refused; want %d, 23", len(got.Rows), g.Refused(), row.MaxGroups)
	}
	if w := words(got.Rows[0], "pid", "count"); w != "0 2" {
		t.Errorf("first group: %s, want 0 2", w)
	}
}

func TestByErrors(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{
		{"com", `by: unknown column "com": did you mean comm? (--columns help lists them)`},
		{"daddr", `by: unknown column "daddr": did you mean raddr? (--columns help lists them)`},
		{"zzzzzz", `by: unknown column "zzzzzz" (--columns help lists them)`},
		{"comm,comm", `by: column comm twice`},
		{"stack", `by: column stack cannot be grouped by`},
		{"time", `by: rows cannot be grouped by time: use --interval for one output per tick`},
		{"", `by: no column to group by`},
	} {
		var keys []string
		if tt.keys != "" {
			keys = strings.Split(tt.keys, ",")
		}
		if _, err := row.By(nil, keys, sample()); err == nil || err.Error() != tt.want {
			t.Errorf("--by %s: got %v, want %s", tt.keys, err, tt.want)
		}
	}
}

func TestSort(t *testing.T) {
	s := sample()
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	ip := netip.MustParseAddr
	values := []map[string]any{
		{"pid": 1, "comm": "b", "raddr": ip("10.0.0.2"), "errno": -5, "time": at(1)},
		{"pid": 2, "comm": "a", "raddr": ip("::1"), "errno": 3, "time": at(3)}, // IPv6 sorts behind IPv4
		{"pid": 3},
		{"pid": 4, "comm": "b", "raddr": ip("9.9.9.9"), "errno": -1, "time": at(2)},
	}
	for _, tt := range []struct {
		column string
		asc    bool
		top    int
		want   string
	}{
		{"pid", false, 0, "4 3 2 1"},
		{"pid", true, 0, "1 2 3 4"},
		{"pid", false, 2, "4 3"},
		{"errno", false, 0, "2 4 1 3"},
		{"errno", true, 0, "1 4 2 3"},
		{"comm", false, 0, "2 1 4 3"},
		{"comm", true, 3, "2 1 4"},
		{"raddr", false, 0, "4 1 2 3"},
		{"time", false, 0, "2 4 1 3"},
		{"time", true, 0, "1 4 2 3"},
		{"", false, 0, "1 2 3 4"},
		{"", false, 3, "1 2 3"},
	} {
		t.Run(fmt.Sprint(tt.column, tt.asc, tt.top), func(t *testing.T) {
			var got row.Collect
			stage, err := row.Sort(&got, tt.column, tt.asc, tt.top, s)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // each output by itself
				got = row.Collect{}
				for _, v := range values {
					feed(t, stage, rowOf(t, s, v))
				}
				if tt.column != "" && len(got.Rows) > 0 {
					t.Error("rows came out before the output was complete")
				}
				if err := stage.End(row.End{Output: true}); err != nil {
					t.Fatal(err)
				}
				var ids []string
				for _, r := range got.Rows {
					ids = append(ids, words(r, "pid"))
				}
				if w := strings.Join(ids, " "); w != tt.want {
					t.Errorf("got %s, want %s", w, tt.want)
				}
			}
		})
	}
	_, err := row.Sort(&row.Collect{}, "pidd", false, 0, s)
	if want := `sort: unknown column "pidd": did you mean pid? (--columns help lists them)`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Equal rows stay in order, though the source reuses its row.
func TestSortIsStable(t *testing.T) {
	s := sample()
	var got row.Collect
	stage, err := row.Sort(&got, "tx_bytes", false, 0, s)
	if err != nil {
		t.Fatal(err)
	}
	r := s.New()
	for i := range 101 {
		r.Get("pid").SetUint(uint64(i))
		r.Get("tx_bytes").SetUint(uint64(i % 2))
		feed(t, stage, r)
	}
	if err := stage.End(row.End{Output: true}); err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Rows {
		want := 2*i + 1
		if i >= 50 {
			want = 2 * (i - 50)
		}
		if n := r.Get("pid").N; n != uint64(want) {
			t.Fatalf("row %d is %d, want %d", i, n, want)
		}
	}
}

func histSchema() *row.Schema {
	return &row.Schema{Tool: "socksize", Show: []int{0, 1}, Columns: []row.Column{
		{ID: "comm", Head: "COMM", Kind: row.Text, Div: 1, Scale: 1, Left: true},
		{ID: "size", Head: "SIZE", Kind: row.Object, Div: 1, Scale: 1, Left: true, Unit: "bytes"},
	}}
}

func histOf(values ...uint64) *kern.Hist {
	h := &kern.Hist{}
	for _, v := range values {
		h.Add(v)
	}
	return h
}

func TestSortByHistogram(t *testing.T) {
	s := histSchema()
	for _, tt := range []struct{ column, want string }{
		{"size", "b c a"}, {"count", "b c a"}, {"max", "c a b"}, {"sum", "c a b"},
	} {
		var got row.Collect
		stage, err := row.Sort(&got, tt.column, false, 0, s)
		if err != nil {
			t.Fatal(err)
		}
		feed(t, stage,
			rowOf(t, s, map[string]any{"comm": "a", "size": histOf(100)}),
			rowOf(t, s, map[string]any{"comm": "b", "size": histOf(1, 2, 3)}),
			rowOf(t, s, map[string]any{"comm": "c", "size": histOf(10, 5000)}))
		if err := stage.End(row.End{Last: true}); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, r := range got.Rows {
			order = append(order, words(r, "comm"))
		}
		if w := strings.Join(order, " "); w != tt.want {
			t.Errorf("--sort %s: got %s, want %s", tt.column, w, tt.want)
		}
	}
}

// Rows of two views come out view by view, each cut by itself.
func TestSortKeepsViewsApart(t *testing.T) {
	s, h := sample(), histSchema()
	var got row.Collect
	stage, err := row.Sort(&got, "pid", false, 2, s, h)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		feed(t, stage, rowOf(t, s, map[string]any{"pid": i, "comm": fmt.Sprint("s", i)}), rowOf(t, h, map[string]any{"comm": fmt.Sprint("h", i)}))
	}
	if err := stage.End(row.End{Output: true}); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range got.Rows {
		order = append(order, words(r, "comm"))
	}
	if w := strings.Join(order, " "); w != "s2 s1 h0 h1" {
		t.Errorf("got %s, want s2 s1 h0 h1", w)
	}
}

func TestLimit(t *testing.T) {
	s := sample()
	t.Run("rows", func(t *testing.T) {
		var got row.Collect
		l := row.Limit(&got, 3, false)
		var err error
		n := 0
		for err == nil {
			err = l.Row(rowOf(t, s, map[string]any{"pid": n}))
			n++
		}
		if !errors.Is(err, row.Done) || n != 3 || len(got.Rows) != 3 {
			t.Errorf("error %v after %d rows, %d came out; want Done after 3", err, n, len(got.Rows))
		}
		if len(got.Ends) != 1 || !got.Ends[0].Last || got.Ends[0].Output {
			t.Errorf("ends %+v, want one last", got.Ends)
		}
		if err := l.Row(s.New()); err != row.Done {
			t.Errorf("a row too many: %v, want Done", err)
		}
		if err := l.End(row.End{Last: true}); err != row.Done || len(got.Rows) != 3 || len(got.Ends) != 1 {
			t.Errorf("after the end: error %v, %d rows, %d ends", err, len(got.Rows), len(got.Ends))
		}
	})
	t.Run("outputs", func(t *testing.T) {
		var got row.Collect
		l := row.Limit(&got, 2, true)
		feed(t, l, s.New(), s.New())
		if err := l.End(row.End{Output: true}); err != nil {
			t.Fatal(err)
		}
		if err := l.End(row.End{}); err != nil { // a batch is no output
			t.Fatal(err)
		}
		feed(t, l, s.New())
		if err := l.End(row.End{Output: true}); err != row.Done {
			t.Errorf("second output: %v, want Done", err)
		}
		if len(got.Rows) != 3 || len(got.Ends) != 3 || !got.Ends[2].Last || !got.Ends[2].Output {
			t.Errorf("%d rows, ends %+v", len(got.Rows), got.Ends)
		}
	})
	t.Run("fewer than allowed", func(t *testing.T) {
		var got row.Collect
		l := row.Limit(&got, 5, false)
		feed(t, l, s.New())
		if err := l.End(row.End{Last: true}); err != nil {
			t.Errorf("got %v", err)
		}
	})
	if next := (&row.Collect{}); row.Limit(next, 0, false) != row.Sink(next) {
		t.Error("no limit is a stage")
	}
}

// Sorted rows are cut exactly too, though they arrive with the end.
func TestLimitBehindSort(t *testing.T) {
	s := sample()
	var got row.Collect
	stage, err := row.Sort(row.Limit(&got, 3, false), "pid", false, 0, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		feed(t, stage, rowOf(t, s, map[string]any{"pid": i}))
	}
	if err := stage.End(row.End{Output: true}); err != row.Done || len(got.Rows) != 3 || len(got.Ends) != 1 {
		t.Errorf("error %v, %d rows, %d ends; want Done, 3, 1", err, len(got.Rows), len(got.Ends))
	}
}

type broken struct{ error }

func (b broken) Row(*row.Row) error { return b.error }
func (b broken) End(row.End) error  { return b.error }

func TestTee(t *testing.T) {
	s := sample()
	var one, two row.Collect
	tee := row.Tee(row.Limit(&one, 2, false), row.Limit(&two, 5, false))
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		err = tee.Row(s.New())
	}
	if err != row.Done || n != 5 || len(one.Rows) != 2 || len(two.Rows) != 5 {
		t.Errorf("error %v after %d rows: %d and %d came out", err, n, len(one.Rows), len(two.Rows))
	}
	if err := tee.End(row.End{}); err != row.Done {
		t.Errorf("after all are done: %v", err)
	}
	boom := errors.New("boom")
	if err := row.Tee(&one, broken{boom}).Row(s.New()); err != boom {
		t.Errorf("got %v, want boom", err)
	}
}

func TestCount(t *testing.T) {
	s := sample()
	c := &row.Count{Next: &row.Collect{}}
	feed(t, c, s.New(), s.New(), s.New())
	for _, e := range []row.End{{}, {Output: true}, {Output: true, Last: true}} {
		if err := c.End(e); err != nil {
			t.Fatal(err)
		}
	}
	if c.Rows != 3 || c.Outputs != 2 {
		t.Errorf("%d rows, %d outputs; want 3, 2", c.Rows, c.Outputs)
	}
	refuses := &row.Count{Next: broken{errors.New("no")}}
	_ = refuses.Row(s.New())
	if refuses.Rows != 0 {
		t.Error("a row that was not taken is counted")
	}
}

// Collect must not be fooled by rows that are reused.
func TestCollectClones(t *testing.T) {
	s := sample()
	r := s.New()
	b := []byte("aaaa")
	var got row.Collect
	r.Get("comm").SetText(unsafeString(b))
	feed(t, &got, r)
	copy(b, "zzzz")
	r.Get("pid").SetUint(9)
	if w := words(got.Rows[0], "comm", "pid"); w != "aaaa -" {
		t.Errorf("got %q, want the row as it was", w)
	}
}

func TestNearest(t *testing.T) {
	ids := []string{"time", "pid", "comm", "lport", "rport", "raddr", "laddr", "latency_us", "duration_ms", "tx_bytes"}
	for _, tt := range []struct{ word, want string }{
		{"latncy_us", "latency_us"}, {"latency", "latency_us"}, {"LATENCY_US", "latency_us"},
		{"port", "lport"}, {"prot", "lport"}, {"rprot", "rport"}, {"pdi", "pid"}, {"pod", "pid"}, {"command", "comm"},
		{"bytes", "tx_bytes"}, {"x", ""}, {"", ""}, {"zzz", ""}, {"com", "comm"}, {"dur", "duration_ms"},
	} {
		if got := row.Nearest(tt.word, ids); got != tt.want {
			t.Errorf("nearest to %q: got %q, want %q", tt.word, got, tt.want)
		}
	}
	if got := row.Nearest("a", nil); got != "" {
		t.Errorf("nearest of nothing: %q", got)
	}
	if !slices.Contains(row.Measures, row.Nearest("p9", row.Measures)) {
		t.Error("p9 is near to no measure")
	}
}

// TestFold: rows that agree are one, and rows of a view that has other columns are
// as they were.
func TestFold(t *testing.T) {
	s := sample()
	other := &row.Schema{Tool: "sample", View: "other", Columns: s.Columns[:5]}
	stack := func(f string) *kern.Stack { return &kern.Stack{Frames: []kern.Frame{{Sym: f}}} }
	var got row.Collect
	f := row.Fold(&got, []string{"comm", "stack"})
	feed(t, f,
		rowOf(t, s, map[string]any{"comm": "a", "stack": stack("f"), "tx_bytes": 1}),
		rowOf(t, other, map[string]any{"comm": "a", "tx_bytes": 10}),
		rowOf(t, s, map[string]any{"comm": "a", "stack": stack("f"), "tx_bytes": 2}),
		rowOf(t, other, map[string]any{"comm": "a", "tx_bytes": 20}),
		rowOf(t, s, map[string]any{"comm": "a", "stack": stack("g"), "tx_bytes": 4}),
	)
	if err := f.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	var sums []uint64
	for _, r := range got.Rows {
		sums = append(sums, r.Get("tx_bytes").N)
	}
	if want := []uint64{3, 10, 20, 4}; !slices.Equal(sums, want) {
		t.Errorf("sums %v, want %v", sums, want)
	}
}
