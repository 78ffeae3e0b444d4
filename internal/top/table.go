// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"

	"seine/internal/row"
	"seine/internal/words"
)

// A column of rows of type T. It gives the value for filters, sorting and JSON, and the text for
// the screen.
type column[T any] struct {
	id, head, help string
	kind           row.Kind
	div            uint64 // value ÷ div is in the unit that the id names; 0: 1
	width          int    // cells
	grow           int    // its share of the free room
	rank           int    // the highest is left out first on a narrow screen; 0: never left out; -1: not on screens
	left           bool
	up             bool // sorting starts with the smallest
	cell           func(x *T, c *row.Cell)
	text           func(x *T) string
	style          func(x *T) style // nil: normal
	cut            func(s string, cells int) string
}

// table is a kind of things and its columns.
type table[T any] struct {
	schema  *row.Schema
	timed   *row.Schema // the same with a time in front
	columns []column[T]
	usual   string // the column that it is sorted by
	key     func(x *T) any
	has     func(key any) func(x *T) bool // the thing with that key
	tie     func(a, b *T) int
}

func newTable[T any, K comparable](view, usual string, key func(x *T) K, tie func(a, b *T) int, columns []column[T]) *table[T] {
	t := &table[T]{schema: &row.Schema{Tool: "top", View: view}, columns: columns, usual: usual, tie: tie}
	t.key = func(x *T) any { return key(x) }
	t.has = func(k any) func(x *T) bool {
		want, ok := k.(K)
		return func(x *T) bool { return ok && key(x) == want }
	}
	for i := range columns {
		c := &columns[i]
		t.schema.Columns = append(t.schema.Columns, row.Column{
			ID: c.id, Head: c.head, Help: c.help, Kind: c.kind, Div: max(c.div, 1), Scale: 1, Width: c.width, Left: c.left,
			Inner: c.kind == row.Object, Unit: unitOf(c.kind),
		})
		t.schema.Show = append(t.schema.Show, i)
	}
	moment := row.Column{ID: "time", Head: "TIME", Help: "end of the interval", Kind: row.Time, Div: 1, Scale: 1, Left: true}
	t.timed = &row.Schema{Tool: "top", View: view, Columns: append([]row.Column{moment}, t.schema.Columns...)}
	return t
}

// unitOf is the unit of histograms: here all are times.
func unitOf(k row.Kind) string {
	if k == row.Object {
		return "us"
	}
	return ""
}

// A query says which rows are shown, in which order, and where the cursor is.
type query struct {
	where   string
	sort    string // id of a column; "": the usual one
	reverse bool
	cursor  any  // key of the row under the cursor; nil: the one at At
	at, top int  // the row under the cursor, and the first one on the screen
	pinned  bool // the cursor was moved and stays with its row; else it stays at the first row
}

// pane is the part of a screen that shows a table.
type pane struct {
	lines          []string // head, then rows
	total, matched int
	at, top        int
	cursor         any
	selected       any // *T
	visible        []any
	err            error
}

// sorted is a thing with the value that it is sorted by.
type sorted[T any] struct {
	x    *T
	cell row.Cell
}

// first keeps the first n rows in an order. It is a heap with the last of them in front.
type first[T any] struct {
	n       int
	all     []sorted[T]
	compare func(a, b *sorted[T]) int
}

func (f *first[T]) Len() int           { return len(f.all) }
func (f *first[T]) Less(i, j int) bool { return f.compare(&f.all[j], &f.all[i]) < 0 }
func (f *first[T]) Swap(i, j int)      { f.all[i], f.all[j] = f.all[j], f.all[i] }
func (f *first[T]) Push(any)           {}
func (f *first[T]) Pop() any           { return nil }

// offer takes a copy of a thing if it is one of the first n.
func (f *first[T]) offer(one *sorted[T]) {
	switch {
	case f.n == 0:
	case len(f.all) < f.n:
		kept := sorted[T]{new(T), one.cell}
		*kept.x = *one.x
		if f.all = append(f.all, kept); len(f.all) == f.n {
			heap.Init(f)
		}
	case f.compare(one, &f.all[0]) < 0:
		*f.all[0].x = *one.x
		f.all[0].cell = one.cell
		heap.Fix(f, 0)
	}
}

// picked are some of the things that match, in their order.
type picked[T any] struct {
	items          []*T
	from           int // how many come before the first of them
	matched, total int
}

// scan calls for each thing that matches the query, with the value that it is sorted by, and
// counts. Things are valid during the call.
func (t *table[T]) scan(each func(func(*T)), q *query, p *picked[T], do func(one *sorted[T])) error {
	keep, err := t.filter(q.where)
	if err != nil {
		return err
	}
	by := t.sorting(q)
	var one sorted[T]
	each(func(x *T) {
		if p.total++; keep != nil && !keep(x) {
			return
		}
		p.matched++
		one = sorted[T]{x: x}
		t.columns[by].cell(x, &one.cell)
		do(&one)
	})
	return nil
}

// pick is the first n things.
func (t *table[T]) pick(each func(func(*T)), q *query, n int) (p picked[T], err error) {
	order := t.order(q)
	best := &first[T]{n: n, compare: order}
	if err := t.scan(each, q, &p, best.offer); err != nil {
		return picked[T]{}, err
	}
	p.add(best, order)
	return p, nil
}

// around is the row under the cursor with up to n rows before and after it. Its cost does not
// depend on how many come before. It finds nothing if the row is gone.
func (t *table[T]) around(each func(func(*T)), q *query, n int) (p picked[T], err error) {
	var under sorted[T]
	is := t.has(q.cursor)
	if err := t.scan(each, q, &p, func(one *sorted[T]) {
		if is(one.x) {
			under = sorted[T]{new(T), one.cell}
			*under.x = *one.x
		}
	}); err != nil || under.x == nil {
		return picked[T]{}, err
	}
	p = picked[T]{}
	order := t.order(q)
	before := &first[T]{n: n, compare: func(a, b *sorted[T]) int { return order(b, a) }}
	after := &first[T]{n: n + 1, compare: order}
	if err := t.scan(each, q, &p, func(one *sorted[T]) {
		if order(one, &under) < 0 {
			p.from++
			before.offer(one)
		} else {
			after.offer(one)
		}
	}); err != nil {
		return picked[T]{}, err
	}
	p.from -= len(before.all)
	p.add(before, order)
	p.add(after, order)
	return p, nil
}

// add sorts what was kept and puts it behind the others.
func (p *picked[T]) add(f *first[T], order func(a, b *sorted[T]) int) {
	slices.SortFunc(f.all, func(a, b sorted[T]) int { return order(&a, &b) })
	for i := range f.all {
		p.items = append(p.items, f.all[i].x)
	}
}

// sorting is the column that a query sorts by.
func (t *table[T]) sorting(q *query) int { return t.column(cmp.Or(q.sort, t.usual)) }

// order compares by the value; the order of things that are equal there never changes.
func (t *table[T]) order(q *query) func(a, b *sorted[T]) int {
	up := t.columns[t.sorting(q)].up != q.reverse
	return func(a, b *sorted[T]) int {
		if c := compareCells(&a.cell, &b.cell, up); c != 0 {
			return c
		}
		return t.tie(a.x, b.x)
	}
}

// compareCells compares two values. An absent one comes last.
func compareCells(a, b *row.Cell, up bool) int {
	if a.Kind == row.Null || b.Kind == row.Null {
		if a.Kind == b.Kind {
			return 0
		}
		if a.Kind == row.Null {
			return 1
		}
		return -1
	}
	var n int
	switch a.Kind {
	case row.Text, row.Addr:
		n = strings.Compare(a.S, b.S)
	case row.Int:
		n = cmp.Compare(int64(a.N), int64(b.N))
	default:
		n = cmp.Compare(a.N, b.N)
	}
	if !up {
		n = -n
	}
	return n
}

// column is where a column is; the first one if there is none of that id.
func (t *table[T]) column(id string) int {
	return max(0, slices.IndexFunc(t.columns, func(c column[T]) bool { return c.id == id }))
}

// kept notes whether a filter lets a row through.
type kept struct{ yes bool }

func (k *kept) Row(*row.Row) error { k.yes = true; return nil }
func (k *kept) End(row.End) error  { return nil }

// filter compiles an expression; nil: there is none.
func (t *table[T]) filter(where string) (func(x *T) bool, error) {
	if strings.TrimSpace(where) == "" {
		return nil, nil
	}
	var k kept
	f, err := row.Where(&k, where, []*row.Schema{t.schema})
	if err != nil {
		return nil, err
	}
	r := t.schema.New()
	var used []int
	for _, id := range f.Uses() {
		used = append(used, t.column(id))
	}
	return func(x *T) bool {
		k.yes = false
		for _, i := range used {
			r.Cells[i] = row.Cell{}
			t.columns[i].cell(x, &r.Cells[i])
		}
		return f.Row(r) == nil && k.yes
	}, nil
}

// rows hands all things to a sink, with the moment that they are of.
func (t *table[T]) rows(each func(func(*T)), at time.Time, to row.Sink) (err error) {
	r := t.timed.New()
	each(func(x *T) {
		if err != nil {
			return
		}
		clear(r.Cells)
		setTime(&r.Cells[0], at)
		for i := range t.columns {
			t.columns[i].cell(x, &r.Cells[i+1])
		}
		err = to.Row(r)
	})
	return err
}

// ids are the columns that a filter may name.
func (t *table[T]) ids() (out []string) {
	for i := range t.columns {
		if t.columns[i].kind != row.Object {
			out = append(out, t.columns[i].id)
		}
	}
	return out
}

// sortable are the columns that a user can sort by: the default one and the visible ones.
func (t *table[T]) sortable() []string {
	out := []string{t.usual}
	for i := range t.columns {
		if c := &t.columns[i]; c.rank >= 0 && c.id != t.usual {
			out = append(out, c.id)
		}
	}
	return out
}

// rises reports whether sorting by a column starts with the smallest value.
func (t *table[T]) rises(id string) bool { return t.columns[t.column(cmp.Or(id, t.usual))].up }

// check checks a filter.
func (t *table[T]) check(where string) error { _, err := t.filter(where); return err }

// gap is between columns.
const gap = 2

// layout chooses the columns that fit and gives them their widths.
func (t *table[T]) layout(cells int) (show []int, widths []int) {
	most := 0
	for i := range t.columns {
		most = max(most, t.columns[i].rank)
	}
	for rank := most; rank >= 0; rank-- {
		show, widths = nil, nil
		used, parts := -gap, 0
		for i := range t.columns {
			if c := &t.columns[i]; c.rank >= 0 && c.rank <= rank {
				show, widths = append(show, i), append(widths, c.width)
				used += c.width + gap
				parts += c.grow
			}
		}
		if used > cells && rank > 0 {
			continue
		}
		left := max(cells-used, 0)
		for i, n := range show {
			if g := t.columns[n].grow; g > 0 {
				share := left * g / parts
				widths[i] += share
				left, parts = left-share, parts-g
			}
		}
		break
	}
	return show, widths
}

// pane shows the things that fit into so many cells and lines, the head among them.
func (t *table[T]) pane(each func(func(*T)), q query, cells, lines int, l Look) pane {
	const mark = 2 // the place of the mark of the row under the cursor
	show, widths := t.layout(cells - mark)
	by := t.sorting(&q)
	rows := max(lines-1, 0)
	p := pane{at: max(q.at, 0), top: max(q.top, 0), cursor: q.cursor}
	var got picked[T]
	if p.at > rows && q.cursor != nil {
		got, p.err = t.around(each, &q, rows)
	}
	if p.err == nil && got.items == nil {
		got, p.err = t.pick(each, &q, max(p.at, p.top)+rows+1)
	}
	p.matched, p.total = got.matched, got.total
	if q.cursor != nil {
		if i := slices.IndexFunc(got.items, t.has(q.cursor)); i >= 0 {
			p.at = got.from + i
		}
	}
	p.at = max(min(p.at, p.matched-1), 0)
	p.top = max(min(p.top, p.at, p.matched-rows), p.at-rows+1, 0)
	p.lines = append(p.lines, l.paint(strong, t.heads(show, widths, by, q.reverse, mark)))
	for i := p.top; i < min(p.top+rows, got.from+len(got.items)); i++ {
		x := got.items[i-got.from]
		p.visible = append(p.visible, t.key(x))
		if i == p.at {
			p.selected, p.cursor = x, t.key(x)
		}
		p.lines = append(p.lines, t.line(x, show, widths, i == p.at, l))
	}
	return p
}

func (t *table[T]) heads(show, widths []int, by int, reverse bool, mark int) string {
	var b strings.Builder
	b.WriteString(spaces(mark))
	for i, n := range show {
		c := &t.columns[n]
		head := c.head
		if n == by {
			if c.up != reverse {
				head += "▲"
			} else {
				head += "▼"
			}
		}
		b.WriteString(fit(head, widths[i], c.left))
		if i+1 < len(show) {
			b.WriteString(spaces(gap))
		}
	}
	return b.String()
}

func (t *table[T]) line(x *T, show, widths []int, under bool, l Look) string {
	var b strings.Builder
	b.WriteString("  ")
	for i, n := range show {
		c := &t.columns[n]
		text := words.Clean(c.text(x))
		if c.cut != nil {
			text = c.cut(text, widths[i])
		}
		text = fit(text, widths[i], c.left)
		if c.style != nil && !under {
			text = l.paint(c.style(x), text)
		}
		b.WriteString(text)
		if i+1 < len(show) {
			b.WriteString(spaces(gap))
		}
	}
	if under {
		return l.paint(chosen, ">"+b.String()[1:])
	}
	return b.String()
}

// plain writes all rows as lines in full width.
func (t *table[T]) plain(each func(func(*T)), q query) ([]string, error) {
	got, err := t.pick(each, &q, 1<<31)
	if err != nil {
		return nil, err
	}
	items := got.items
	var show, widths []int
	texts := make([][]string, len(items))
	for i := range t.columns {
		c := &t.columns[i]
		if c.rank < 0 {
			continue
		}
		most := width(c.head)
		for n := range items {
			text := words.Clean(c.text(items[n]))
			texts[n] = append(texts[n], text)
			most = max(most, width(text))
		}
		show, widths = append(show, i), append(widths, most)
	}
	line := func(cell func(i int) string) string {
		var b strings.Builder
		for i, n := range show {
			b.WriteString(fit(cell(i), widths[i], t.columns[n].left) + spaces(gap))
		}
		return strings.TrimRight(b.String(), " ")
	}
	out := []string{line(func(i int) string { return t.columns[show[i]].head })}
	for n := range items {
		out = append(out, line(func(i int) string { return texts[n][i] }))
	}
	return out, nil
}

// The cells of common kinds.

func setText(c *row.Cell, s string) {
	if s != "" {
		c.SetText(s)
	}
}

func setUint(c *row.Cell, n uint64, known bool) {
	if known {
		c.SetUint(n)
	}
}

func setTime(c *row.Cell, t time.Time) { *c = row.Cell{Kind: row.Time, N: uint64(t.UnixNano())} }

func absent(known bool, text string) string {
	if !known {
		return "-"
	}
	return text
}

// help are the columns and what they mean.
func (t *table[T]) help() (out []string) {
	for i := range t.columns {
		out = append(out, fmt.Sprintf("%-14s %s", t.columns[i].id, t.columns[i].help))
	}
	return out
}
