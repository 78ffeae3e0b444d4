// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"seine/internal/journal"
	"seine/internal/kern"
	"seine/internal/row"
)

// schemas of the tests: every kind of cell, and two views.
func schemas() []*row.Schema {
	s := &row.Schema{Tool: "test", View: "one"}
	for i, c := range []row.Column{
		{ID: "time", Kind: row.Time}, {ID: "netns", Kind: row.Uint}, {ID: "uid", Kind: row.Uint}, {ID: "n", Kind: row.Uint, Div: 1000}, {ID: "i", Kind: row.Int},
		{ID: "b", Kind: row.Bool}, {ID: "text", Kind: row.Text}, {ID: "addr", Kind: row.Addr}, {ID: "hist", Kind: row.Object, Unit: "us"},
		{ID: "stack", Kind: row.Object}, {ID: "never", Kind: row.Uint},
	} {
		c.Div = max(c.Div, 1)
		s.Columns = append(s.Columns, c)
		s.Show = append(s.Show, i)
	}
	o := &row.Schema{Tool: "test", View: "two", Columns: s.Columns[:7]}
	return []*row.Schema{s, o}
}

// anyRow fills a row by chance, with the values that are hard among them.
func anyRow(r *rand.Rand, s *row.Schema, at int64) *row.Row {
	out := s.New()
	edge := []uint64{0, 1, 127, 128, math.MaxInt64, 1 << 63, math.MaxUint64}
	number := func() uint64 {
		if r.IntN(4) == 0 {
			return edge[r.IntN(len(edge))]
		}
		return uint64(r.IntN(100000))
	}
	texts := []string{"", "nginx", "a\x00b", "\xff\xfe", "curl", "日本", string(make([]byte, 300))}
	for i := range s.Columns {
		c := &out.Cells[i]
		if id := s.Columns[i].ID; id == "never" || id != "time" && r.IntN(5) == 0 {
			continue
		}
		switch s.Columns[i].Kind {
		case row.Time:
			*c = row.Cell{Kind: row.Time, N: uint64(at)}
		case row.Uint:
			if c.SetUint(number()); s.Columns[i].ID != "n" {
				c.N %= 50
			}
		case row.Int:
			c.SetInt(int64(number()))
		case row.Bool:
			*c = row.Cell{Kind: row.Bool, N: uint64(r.IntN(2))}
		case row.Text:
			c.SetText(texts[r.IntN(len(texts))])
		case row.Addr:
			*c = row.Cell{Kind: row.Addr, S: fmt.Sprintf("%016d", r.IntN(5))}
			if r.IntN(5) == 0 {
				c.SetText("/run/socket") // of a UNIX socket
			}
		case row.Object:
			*c = row.Cell{Kind: row.Object, Ref: anyObject(r, s.Columns[i].Unit != "", number)}
		}
	}
	return out
}

func anyObject(r *rand.Rand, hist bool, number func() uint64) any {
	if hist {
		h := &kern.Hist{}
		for range r.IntN(50) {
			h.Add(number())
		}
		return h
	}
	st := &kern.Stack{Broken: r.IntN(2) == 0}
	for range r.IntN(5) {
		st.Frames = append(st.Frames, kern.Frame{Sym: []string{"", "tcp_sendmsg", "std::vector<int>\n"}[r.IntN(3)], Module: "vmlinux", Off: number()})
	}
	return st
}

// heard is what a Listener was told.
type heard struct {
	rows  []*row.Row
	marks []Mark
	order []string
	stop  func(*heard) bool
}

func (h *heard) Row(r *row.Row) error {
	h.rows = append(h.rows, r.Clone())
	h.order = append(h.order, "row of "+r.Schema.View)
	if h.stop != nil && h.stop(h) {
		return row.Done
	}
	return nil
}
func (h *heard) Mark(_ *Schema, m *Mark) error {
	h.order = append(h.order, m.Kind)
	if m.Kind == Batch {
		return nil
	}
	h.marks = append(h.marks, *m)
	return nil
}
func (h *heard) Idle() error { return nil }

// into finds the schema of the same view.
func into(all []*row.Schema) func(*Schema) *row.Schema {
	return func(s *Schema) *row.Schema {
		for _, o := range all {
			if o.View == s.View {
				return o
			}
		}
		return nil
	}
}

func play(t *testing.T, path string, q *Query) (*heard, *Recording) {
	t.Helper()
	r, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	if err := r.Play(context.Background(), q, h); err != nil {
		t.Fatal(err)
	}
	return h, r
}

func create(t testing.TB, dir string, o Options) *Recorder {
	t.Helper()
	o.Sync = -1
	r, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const base = int64(1_794_000_000_000_000_000)

// TestRows writes rows of every kind, with ends between them, and reads the same.
func TestRows(t *testing.T) {
	dir := t.TempDir()
	chance := rand.New(rand.NewPCG(1, 2))
	all := schemas()
	rec := create(t, dir, Options{
		Netns:   func(n uint64) string { return fmt.Sprintf("ns%d", n) },
		User:    func(n uint64) string { return fmt.Sprintf("user%d", n) },
		Machine: Machine{Host: "h", Kernel: "k"},
	})
	s := rec.Stream(Source{Name: "test --x", Tool: "test", Interval: time.Second}, all, func(at time.Time) string { return "load " + at.UTC().Format(time.TimeOnly) })
	s.Start(time.Unix(0, base))
	want := &heard{order: []string{Start}}
	for i := range 20000 {
		r := anyRow(chance, all[chance.IntN(2)], base+int64(i)*1000)
		want.rows = append(want.rows, r)
		want.order = append(want.order, "row of "+r.Schema.View)
		if err := s.Row(r); err != nil {
			t.Fatal(err)
		}
		if i%100 == 3 {
			s.End(row.End{Time: time.Unix(0, base)})
			s.End(row.End{Time: time.Unix(0, base)}) // of nothing
			want.order = append(want.order, Batch)
		}
		if i%3000 == 7 {
			e := row.End{Time: time.Unix(0, base+int64(i)*1000), Output: true}
			s.End(e)
			want.order = append(want.order, Output)
		}
	}
	s.End(row.End{Time: time.Unix(0, base+20_000_000), Losses: []row.Loss{{Kind: "ring full", N: 3}}})
	s.End(row.End{Time: time.Unix(0, base+20_000_001), Last: true, Output: true})
	want.order = append(want.order, Losses, Last)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	got, r := play(t, dir, &Query{Into: into(all)})
	if !reflect.DeepEqual(got.order, want.order) {
		t.Errorf("rows and marks came in another order: %d and %d", len(got.order), len(want.order))
	}
	if len(got.rows) != len(want.rows) {
		t.Fatalf("got %d rows, want %d", len(got.rows), len(want.rows))
	}
	for i := range got.rows {
		if !reflect.DeepEqual(got.rows[i], want.rows[i]) {
			t.Fatalf("row %d: got\n%+v\nwant\n%+v", i, got.rows[i].Cells, want.rows[i].Cells)
		}
		if c := got.rows[i].Get("uid"); c.Kind == row.Uint && r.Names().Users[c.N] != fmt.Sprintf("user%d", c.N) {
			t.Fatalf("user %d is called %q", c.N, r.Names().Users[c.N])
		}
		if c := got.rows[i].Get("netns"); c.Kind == row.Uint && r.Names().Netns[c.N] != fmt.Sprintf("ns%d", c.N) {
			t.Fatalf("namespace %d is called %q", c.N, r.Names().Netns[c.N])
		}
	}
	m := got.marks
	if m[0].Every != time.Second || m[0].Time != base || m[1].Above == "" || m[len(m)-2].Losses[0] != (row.Loss{Kind: "ring full", N: 3}) {
		t.Errorf("marks: %+v", m)
	}
	if d := r.Damage(); d != (journal.Damage{}) {
		t.Errorf("damage: %+v", d)
	}
	// A range, and some of the columns.
	some, _ := play(t, dir, &Query{Into: into(all), Since: time.Unix(0, base+5_000_000), Until: time.Unix(0, base+6_000_000), Use: map[string]bool{"text": true}})
	if len(some.rows) != 1000 || !reflect.DeepEqual(some.rows[7].Get("text"), want.rows[5007].Get("text")) {
		t.Errorf("got %d rows of a range, want 1000", len(some.rows))
	}
	for _, r := range some.rows {
		if r.Get("n").Kind != row.Null {
			t.Fatal("a column came that was not asked for")
		}
	}
	c, err := r.Contents(&Query{})
	if err != nil || len(c) != 1 || c[0].Rows != 20000 || c[0].Machine.Host != "h" || len(c[0].Schemas) != 2 || c[0].Min != base {
		t.Errorf("contents: %+v %v", c, err)
	}
}

// TestColumns reads with a schema that lacks a column, has another, and has renamed and
// rescaled some.
func TestColumns(t *testing.T) {
	dir := t.TempDir()
	all := schemas()
	rec := create(t, dir, Options{})
	s := rec.Stream(Source{Name: "test", Tool: "test"}, all[:1], nil)
	r := all[0].New()
	r.Get("time").Kind, r.Get("time").N = row.Time, uint64(base)
	r.Get("n").SetUint(5_000_000)
	r.Get("i").SetInt(-7)
	r.Get("text").SetText("hello")
	s.Row(r)
	s.End(row.End{Last: true})
	rec.Close()
	later := &row.Schema{Tool: "test", View: "one", Columns: []row.Column{
		{ID: "new", Kind: row.Uint, Div: 1}, {ID: "words", Kind: row.Text, Was: []string{"older", "text"}}, {ID: "n", Kind: row.Uint, Div: 1_000_000},
		{ID: "time", Kind: row.Time}, {ID: "i", Kind: row.Int, Div: 10},
	}}
	got, _ := play(t, dir, &Query{Into: into([]*row.Schema{later})})
	want := []row.Cell{{}, {Kind: row.Text, S: "hello"}, {Kind: row.Uint, N: 5_000_000_000}, {Kind: row.Time, N: uint64(base)}, {Kind: row.Int, N: uint64(1<<64 - 70)}}
	if len(got.rows) != 1 || !reflect.DeepEqual(got.rows[0].Cells, want) {
		t.Errorf("got %+v, want %+v", got.rows[0].Cells, want)
	}
}

// TestDropped has the disk refuse rows: recording goes on, and says how many.
func TestDropped(t *testing.T) {
	dir := t.TempDir()
	all := schemas()
	rec := create(t, dir, Options{Options: journal.Options{Budget: journal.MinBudget}})
	s := rec.Stream(Source{Name: "test", Tool: "test"}, all, nil)
	r := all[0].New()
	huge := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(huge)
	r.Get("text").SetText(string(huge))
	s.Row(r) // more than the budget
	r.Get("text").SetText("small")
	s.Row(r)
	s.End(row.End{Last: true})
	rec.Close()
	if rec.Lost() != 1 {
		t.Errorf("%d rows lost, want 1", rec.Lost())
	}
	got, _ := play(t, dir, &Query{Into: into(all)})
	if len(got.rows) != 1 || got.rows[0].Get("text").S != "small" {
		t.Errorf("got %d rows", len(got.rows))
	}
	if len(got.marks) != 2 || got.marks[1].Kind != Dropped || got.marks[1].Rows != 1 {
		t.Errorf("marks: %+v", got.marks)
	}
}

// TestFollow reads what is being written.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	all := schemas()
	rec := create(t, dir, Options{Options: journal.Options{Segment: 4096}})
	s := rec.Stream(Source{Name: "test", Tool: "test"}, all, nil)
	write := func(n int) {
		r := all[n%2].New()
		*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(base) + uint64(n)}
		s.Row(r)
		s.Flush()
	}
	write(0)
	done := make(chan error, 1)
	h := &heard{stop: func(h *heard) bool { return len(h.rows) == 500 }}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- r.Play(ctx, &Query{Into: into(all), Follow: true}, h) }()
	for n := 1; n < 500; n++ {
		write(n)
		if n%50 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := <-done; err != row.Done {
		t.Fatalf("%v after %d rows", err, len(h.rows))
	}
	for i, r := range h.rows {
		if got := r.Get("time").N - uint64(base); got != uint64(i) {
			t.Fatalf("row %d is number %d", i, got)
		}
	}
	rec.Close()
}

// FuzzBlock feeds anything to the reader of blocks.
func FuzzBlock(f *testing.F) {
	chance := rand.New(rand.NewPCG(3, 4))
	all := schemas()
	t := &table{columns: make([]column, len(all[0].Columns))}
	for i := range 20 {
		r := anyRow(chance, all[0], base)
		for i := range t.columns {
			t.columns[i].put(&r.Cells[i])
		}
		t.ords = append(t.ords, uint64(i))
		t.n++
	}
	f.Add(t.bytes(nil))
	s := schemaOf(&Source{}, Machine{}, all[0])
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &player{q: &Query{Into: into(all)}}
		b := p.newBlock(s)
		if b.open(raw, len(s.Columns)) != nil {
			return
		}
		for n := 0; ; n++ {
			if ok, err := b.next(); !ok || err != nil {
				return
			}
			if n > MaxRows {
				t.Fatal("more rows than a block can have")
			}
		}
	})
}

// fixture is a recording of each version of the format, which stays readable. UPDATE=1
// writes that of this version if there is none.
const fixture = "testdata/v1"

func TestFixture(t *testing.T) {
	chance := rand.New(rand.NewPCG(5, 6))
	all := schemas()
	var want []*row.Row
	for i := range 500 {
		want = append(want, anyRow(chance, all[i%2], base+int64(i)*1e6))
	}
	if _, err := os.Stat(fixture); os.Getenv("UPDATE") != "" && os.IsNotExist(err) {
		at := time.Unix(0, base)
		rec := create(t, fixture, Options{
			Options: journal.Options{Segment: 20_000, Now: func() time.Time { return at }},
			Machine: Machine{Host: "fixture", Kernel: "6.18", Arch: "amd64", Boot: "b", Version: "1.1"},
			Netns:   func(uint64) string { return "ns" },
		})
		s := rec.Stream(Source{Name: "test", Tool: "test", Config: map[string]string{"x": "1"}}, all, nil)
		s.now = func() time.Time { return at }
		s.Start(at)
		for i, r := range want {
			s.Row(r)
			if i%50 == 0 {
				at = at.Add(2 * time.Second)
				s.End(row.End{Time: at, Output: true})
			}
		}
		s.End(row.End{Time: at, Last: true, Output: true})
		rec.Close()
		os.Remove(filepath.Join(fixture, ".writer"))
	}
	got, r := play(t, fixture, &Query{Into: into(all)})
	if len(got.rows) != len(want) {
		t.Fatalf("got %d rows, want %d", len(got.rows), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got.rows[i], want[i]) {
			t.Fatalf("row %d: got\n%+v\nwant\n%+v", i, got.rows[i].Cells, want[i].Cells)
		}
	}
	if len(got.marks) != 12 || got.marks[0].Kind != Start || got.marks[11].Kind != Last || len(r.Names().Netns) == 0 || r.Damage() != (journal.Damage{}) {
		t.Errorf("marks %+v, names %+v, damage %+v", got.marks, r.Names(), r.Damage())
	}
	c, err := r.Contents(&Query{})
	if err != nil || len(c) != 1 || c[0].Config["x"] != "1" || c[0].Machine.Version != "1.1" {
		t.Errorf("contents: %+v %v", c, err)
	}
}
