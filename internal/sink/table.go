// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"seine/internal/row"
)

// tableSink writes rows for eyes: the book's heads, aligned columns, sentences
// where the book has them, bars for histograms, one frame a line for stacks.
//
// A column begins and ends at the same place in every row below a head. Before a head is
// written, the rows that wait are measured, and columns grow. Of an output all rows wait, of
// events the first batch; on a terminal each batch waits, and the head is repeated if a column
// grew. A longer value that comes later pushes what follows to the right until there is room
// again; nothing is cut.
type tableSink struct {
	*writer
	o     Options
	clock clock
	plans plans[tablePlan]

	held    []*row.Row // wait to be measured
	pass    bool       // rows do not wait: the columns have their widths
	scratch []byte

	view    *tablePlan // whose head stands above
	lines   int        // since that head
	begun   bool       // the output has its time and its head
	printed bool       // something has been written at all
	gap     bool       // a block was written: the next one keeps a distance
	used    int        // lines of the screen that this output takes
	more    int        // rows of this output for which the screen has no room
}

type tablePlan struct {
	schema *row.Schema
	cols   []tableColumn
	time   int      // the column for the line above an output, -1 for none
	line   []phrase // a sentence in place of columns
	hist   *row.Column
	ref    int   // the histogram's cell
	stacks []int // cells, shown below the row
	head   []byte
	grown  bool // since the head was written
}

// tableColumn is a column and its place: start and end are where its narrowest
// values lie.
type tableColumn struct {
	cell       int
	col        *row.Column
	div        uint64
	left       bool
	head       string
	wide       int // room for values
	start, end int
	with       *tableColumn // written behind it, after a colon
}

// phrase is some words of a sentence and the value that follows them.
type phrase struct {
	words string
	col   *tableColumn // nil at the end
}

func newTable(w *writer, o Options) (row.Sink, error) {
	t := &tableSink{writer: w, o: o}
	if err := t.clock.init(o); err != nil {
		return nil, err
	}
	t.plans.make = t.plan
	for _, s := range o.Schemas { // a bad sentence is found before the run
		if _, err := t.plans.of(s); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tableSink) plan(s *row.Schema) (*tablePlan, error) {
	chosen := t.o.Columns[s]
	p := &tablePlan{schema: s, time: -1, ref: -1}
	if chosen == nil && s.Line != "" {
		return p, t.sentence(p)
	}
	columns := chosen
	if columns == nil {
		if columns = s.Show; columns == nil {
			columns = every(s)
		}
	}
	if i := timeColumn(s); t.o.Interval && i >= 0 && t.clock.form != "none" && !slices.Contains(chosen, i) {
		p.time = i
	}
	for _, i := range columns {
		c := &s.Columns[i]
		switch {
		case i == p.time || c.Kind == row.Time && t.clock.form == "none":
		case c.IsHist():
			p.hist, p.ref = c, i
		case c.Inner:
		case c.Kind == row.Object:
			p.stacks = append(p.stacks, i)
		default:
			head, width := c.Head, c.Width
			if c.Kind == row.Time {
				head, width = t.clock.head(head), max(width, t.clock.width())
			}
			k := tableColumn{cell: i, col: c, div: scale(c), left: c.Left}
			if j := s.Index(c.With); c.With != "" && j >= 0 && !slices.Contains(columns, j) {
				k.with = &tableColumn{cell: j, col: &s.Columns[j], div: scale(&s.Columns[j])}
				head += ":" + s.Columns[j].Head
			}
			k.head = c.Before + head + c.After
			k.wide = max(width, utf8.RuneCountInString(k.head))
			p.cols = append(p.cols, k)
		}
	}
	p.layout()
	return p, nil
}

// layout gives the columns their places by their widths, and makes the head.
func (p *tablePlan) layout() {
	at, pos := 0, 0
	p.head = p.head[:0]
	for i := range p.cols {
		k := &p.cols[i]
		k.start, k.end = at, at+k.wide
		at = k.end + 1
		p.head, pos = k.place(append(p.head, k.head...), len(p.head), pos)
	}
	p.head = trimRight(p.head)
}

// widest is how far a column may grow: [address]:port of IPv6 fits. Longer values
// push what follows.
const widest = 48

// measure makes room for a row. A value at the end of the line to the left needs
// none.
func (t *tableSink) measure(p *tablePlan, r *row.Row) {
	for i := range p.cols {
		k := &p.cols[i]
		if k.left && i == len(p.cols)-1 {
			return
		}
		t.scratch = t.joined(t.scratch[:0], k, r)
		if wide := width(t.scratch); wide > k.wide && wide <= widest {
			k.wide, p.grown = wide, true
		}
	}
}

func scale(c *row.Column) uint64 { return max(c.Div, 1) * max(c.Scale, 1) }

// sentence reads the schema's line template.
func (t *tableSink) sentence(p *tablePlan) error {
	rest := p.schema.Line
	for {
		words, after, found := strings.Cut(rest, "{")
		if !found {
			p.line = append(p.line, phrase{words: words})
			return nil
		}
		id, next, closed := strings.Cut(after, "}")
		i := p.schema.Index(id)
		if !closed || i < 0 || p.schema.Columns[i].Kind == row.Object {
			return fmt.Errorf("%s: line %q: no column for {%s}", p.schema.Tool, p.schema.Line, id)
		}
		c := &p.schema.Columns[i]
		p.line = append(p.line, phrase{words, &tableColumn{cell: i, col: c, div: scale(c)}})
		rest = next
	}
}

// place puts the value that was appended to b from from on into the line, of
// which pos characters are written: one space at least after what stands there,
// numbers to the right. It returns the new pos.
func (k *tableColumn) place(b []byte, from, pos int) ([]byte, int) {
	wide := width(b[from:])
	gap := k.start - pos
	if pos > 0 {
		gap = max(gap, 1)
	}
	if !k.left {
		gap = max(gap, k.end-wide-pos)
	}
	if gap > 0 {
		for range gap {
			b = append(b, ' ')
		}
		copy(b[from+gap:], b[from:len(b)-gap])
		for i := range gap {
			b[from+i] = ' '
		}
	}
	return b, pos + max(gap, 0) + wide
}

// width counts characters, not bytes. (utf8.RuneCount makes garbage.)
func width(b []byte) int {
	n := 0
	for _, c := range b {
		if utf8.RuneStart(c) {
			n++
		}
	}
	return n
}

// mostHeld is how many rows wait at the most: those of a very long output after
// them do not make columns grow.
const mostHeld = 10000

func (t *tableSink) Row(r *row.Row) error {
	p, err := t.plans.of(r.Schema)
	if err != nil {
		return err
	}
	if t.pass || len(t.held) == 0 && (p.line != nil || p.hist != nil) {
		return t.write(p, r)
	}
	if t.held = append(t.held, r.Clone()); len(t.held) < mostHeld {
		return nil
	}
	return t.release()
}

// release writes the rows that waited, in columns that they fit into.
func (t *tableSink) release() error {
	if len(t.held) == 0 {
		return nil
	}
	for _, r := range t.held {
		p, err := t.plans.of(r.Schema)
		if err != nil {
			return err
		}
		t.measure(p, r)
	}
	for _, r := range t.held {
		p, err := t.plans.of(r.Schema)
		if err != nil {
			return err
		}
		if err := t.write(p, r); err != nil {
			return err
		}
	}
	t.held, t.pass = t.held[:0], true
	return nil
}

func (t *tableSink) write(p *tablePlan, r *row.Row) error {
	if t.o.Interval && !t.begun {
		t.begin(t.moment(p, r))
	}
	if p.hist != nil {
		t.histogram(p, r)
		return t.room()
	}
	if t.cleared() && t.o.Height > 0 && len(p.stacks) == 0 && t.used >= max(t.o.Height-2, 3) {
		t.more++ // the largest rows come first, and must not scroll away
		return nil
	}
	if t.view != p || p.grown || t.o.Terminal && !t.o.Interval && t.o.Height > 1 && t.lines >= t.o.Height-1 {
		t.header(p)
	}
	if p.line != nil {
		t.say(p, r)
	} else {
		t.row(p, r)
	}
	if len(p.stacks) > 0 {
		t.stacks(p, r)
	}
	return t.room()
}

// moment is the time of an output, as its rows tell it.
func (t *tableSink) moment(p *tablePlan, r *row.Row) time.Time {
	if i := timeColumn(p.schema); i >= 0 && r.Cells[i].Kind == row.Time {
		return time.Unix(0, int64(r.Cells[i].N))
	}
	return time.Time{}
}

// begin starts an output: a clear screen or a distance, and the time.
func (t *tableSink) begin(at time.Time) {
	t.begun, t.view, t.gap, t.used = true, nil, false, 0
	switch {
	case t.cleared():
		t.buf = append(t.buf, "\x1b[H\x1b[2J"...)
	case t.printed:
		t.buf = append(t.buf, '\n')
	}
	line := len(t.buf)
	if !at.IsZero() && t.stamped() {
		c := row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
		t.buf = t.clock.append(t.buf, &c)
	}
	if t.o.Above != nil {
		if above := t.o.Above(at); above != "" {
			if len(t.buf) > line {
				t.buf = append(t.buf, ' ')
			}
			t.buf = append(t.buf, above...)
		}
	}
	if len(t.buf) > line {
		t.buf = append(t.buf, '\n')
		t.printed = true
		t.used++
	}
}

// cleared says whether each output has the screen for itself.
func (t *tableSink) cleared() bool { return t.o.Terminal && t.o.Clear }

// stamped says whether outputs have a line with their time.
func (t *tableSink) stamped() bool {
	return t.plans.plan == nil || t.plans.plan.time >= 0
}

func (t *tableSink) header(p *tablePlan) {
	if t.view != nil && t.view != p || t.gap {
		t.buf = append(t.buf, '\n')
	}
	t.view, t.lines, t.gap = p, 0, false
	if p.grown {
		p.grown = false
		p.layout()
	}
	if t.o.HideHeader || len(p.head) == 0 {
		return
	}
	t.buf = append(t.buf, p.head...)
	t.buf = append(t.buf, '\n')
	t.printed = true
	t.lines++
	t.used++
}

func (t *tableSink) row(p *tablePlan, r *row.Row) {
	b, pos := t.buf, 0
	for i := range p.cols {
		k := &p.cols[i]
		from := len(b)
		b, pos = k.place(t.joined(b, k, r), from, pos)
	}
	t.endLine(trimRight(b))
}

func (t *tableSink) say(p *tablePlan, r *row.Row) {
	line := len(t.buf)
	b := t.buf
	for i := range p.line {
		words := p.line[i].words
		if len(b) == line {
			words = strings.TrimLeft(words, " ") // of a time that is not shown
		}
		b = append(b, words...)
		if k := p.line[i].col; k != nil {
			b = t.value(b, k, &r.Cells[k.cell])
		}
	}
	t.endLine(trimRight(b))
}

func (t *tableSink) endLine(b []byte) {
	t.buf = append(b, '\n')
	t.lines++
	t.used++
	t.printed = true
}

// joined writes a cell with what belongs around it: "-> CLOSE", "[::1]:80".
func (t *tableSink) joined(b []byte, k *tableColumn, r *row.Row) []byte {
	c := &r.Cells[k.cell]
	if c.Kind == row.Null {
		return append(b, '-')
	}
	b = append(append(b, k.col.Before...), k.col.Prefix...)
	if k.with == nil {
		b = t.value(b, k, c)
		if k.col.Age && r.Pending() {
			b = append(b, '+') // pending: so long already
		}
		return append(b, k.col.After...)
	}
	if v6 := c.Kind == row.Addr && !c.IP().Is4(); v6 {
		b = append(t.value(append(b, '['), k, c), ']')
	} else {
		b = t.value(b, k, c)
	}
	return t.value(append(b, ':'), k.with, &r.Cells[k.with.cell])
}

// value writes one cell without padding.
func (t *tableSink) value(b []byte, k *tableColumn, c *row.Cell) []byte {
	switch c.Kind {
	case row.Uint, row.Int:
		if k.col.ID == "netns" && t.o.Netns != nil {
			if name := t.o.Netns(c.N); name != "" {
				return appendEscaped(b, name)
			}
		}
		prec := k.col.Prec
		if prec == 0 && k.col.Scale > 1 && c.N > 0 && c.N < 10*k.div {
			prec = 1 // less than a kilobyte is not nothing
		}
		return appendScaled(b, c, k.div, prec)
	case row.Text:
		if c.S == "" {
			return append(b, '"', '"') // else the next column would be read as this one
		}
		return appendEscaped(b, c.S)
	case row.Addr:
		return appendAddr(b, c)
	case row.Bool:
		return appendBool(b, c)
	case row.Time:
		return t.clock.append(b, c)
	}
	return append(b, '-')
}

func (t *tableSink) End(e row.End) error {
	if err := t.release(); err != nil {
		return err
	}
	if t.o.Terminal || t.o.Interval && e.Output {
		t.pass = false
	}
	switch {
	case t.o.Interval:
		if e.Output && !t.begun {
			t.begin(e.Time) // nothing happened: say so by the time and the head
		}
		if e.Output && t.view == nil && len(t.o.Schemas) == 1 {
			t.first()
		}
		if t.more > 0 && (e.Output || e.Last) {
			t.buf = fmt.Appendf(t.buf, "… %d more\n", t.more)
			t.more = 0
		}
		if e.Output {
			t.begun = false
		}
	case e.Last && t.view == nil && !t.printed && len(t.o.Schemas) == 1:
		t.first()
	}
	return t.flush()
}

// first writes the head of the only view there is if it has no rows.
func (t *tableSink) first() {
	if p, err := t.plans.of(t.o.Schemas[0]); err == nil && p.hist == nil && p.line == nil {
		t.header(p)
	}
}
