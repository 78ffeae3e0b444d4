// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"seine/internal/row"
)

// Plot says how rows become a picture: for each thing that Key names, one above
// the other, a panel for each list of columns, over the column X.
type Plot struct {
	Key     []string   // columns that tell things apart
	Title   []string   // columns whose last value heads its panels
	X       string     // in microseconds; the axis is in seconds or less
	Panels  [][]string // columns to draw as lines
	Units   []string   // of each panel
	Mark    string     // rows whose column Mark holds Marked get a cross
	Marked  string
	Busiest int // things to draw, those whose lines move most; 0: one
	// Shares: the columns of a panel are milliseconds of the time that a row covers, up to
	// its output. They are drawn as shares of their sum, and X is not used.
	Shares bool
	// Ended is a column that is true in the last row of a thing. That row covers the time from
	// the beginning of its output, unless it is also the first row, and ends before the output does.
	Ended string
}

// most is how many points of one thing are kept: beyond it every other goes.
const most = 1 << 16

type plotSink struct {
	*writer
	o      Options
	png    bool
	things map[string]*thing
	key    []byte
	// For Shares: the first end, and the last output.
	zero, output time.Time
	outputs      int
}

// thing is what is drawn of one key.
type thing struct {
	key   string
	title []byte
	rows  int
	step  int // only every so many rows are kept
	x     []float64
	y     map[string][]float64 // NaN: not known
	marks []float64

	untimed int  // rows whose output is not complete
	ended   bool // the last row is the last of all
}

// longest is the column with the most seconds that a row can cover: the length of its output. The
// parts of a service add up to more, since they are those of all its connections.
const longest = ""

func newSVG(w *writer, o Options) (row.Sink, error) { return newPlot(w, o, false) }
func newPNG(w *writer, o Options) (row.Sink, error) { return newPlot(w, o, true) }

func newPlot(w *writer, o Options, png bool) (row.Sink, error) {
	return &plotSink{writer: w, o: o, png: png, things: map[string]*thing{}}, nil
}

func (p *plotSink) Row(r *row.Row) error {
	x := r.Schema.Index(p.o.Plot.X)
	if x < 0 && !p.o.Plot.Shares {
		return nil // a view that is not drawn
	}
	p.key = appendNode(p.key[:0], r, cells(r, p.o.Plot.Key))
	t := p.things[string(p.key)]
	if t == nil {
		t = &thing{key: string(p.key), step: 1, y: map[string][]float64{}}
		p.things[t.key] = t
	}
	at := value(r, x) / 1e6 // of shares: see End
	if m := r.Get(p.o.Plot.Mark); m != nil && m.S == p.o.Plot.Marked {
		t.marks = append(t.marks, at)
	}
	if t.rows++; t.rows%t.step != 0 {
		return nil
	}
	t.title = appendNode(t.title[:0], r, cells(r, p.o.Plot.Title))
	if t.x = append(t.x, at); p.o.Plot.Shares {
		t.untimed++
		if c := r.Get(p.o.Plot.Ended); c != nil {
			t.ended = c.Kind == row.Bool && c.N != 0
		}
		t.y[longest] = append(t.y[longest], math.Inf(1))
	}
	for _, id := range slices.Concat(p.o.Plot.Panels...) {
		t.y[id] = append(t.y[id], value(r, r.Schema.Index(id)))
	}
	if len(t.x) >= most {
		t.thin()
	}
	return nil
}

// cells are the numbers of the columns that a row has of these.
func cells(r *row.Row, ids []string) (at []int) {
	for _, id := range ids {
		if i := r.Schema.Index(id); i >= 0 {
			at = append(at, i)
		}
	}
	return at
}

// value is the number in column i, NaN if there is none.
func value(r *row.Row, i int) float64 {
	if i < 0 || r.Cells[i].Kind == row.Null {
		return math.NaN()
	}
	return r.Schema.Columns[i].Value(&r.Cells[i])
}

func (t *thing) thin() {
	half := func(v []float64) []float64 {
		for i := range len(v) / 2 {
			v[i] = v[2*i]
		}
		return v[:len(v)/2]
	}
	t.x = half(t.x)
	for id := range t.y {
		t.y[id] = half(t.y[id])
	}
	t.step *= 2
}

// moves is how often its lines go up or down: a sender's do with every packet, a
// receiver's hardly ever, though it may have as many rows.
func (t *thing) moves() (n int) {
	for _, v := range t.y {
		for i := 1; i < len(v); i++ {
			if v[i] != v[i-1] {
				n += t.step
			}
		}
	}
	return n
}

func (p *plotSink) End(e row.End) error {
	if p.o.Plot.Shares {
		p.time(e)
	}
	if !e.Last {
		return nil
	}
	things := slices.SortedFunc(maps.Values(p.things), func(a, b *thing) int {
		return cmp.Or(cmp.Compare(b.moves(), a.moves()), cmp.Compare(b.rows, a.rows), cmp.Compare(a.key, b.key))
	})
	things = things[:min(len(things), max(p.o.Plot.Busiest, 1))]
	pic := p.o.Plot.draw(things)
	if p.png {
		return pic.PNG(p.to)
	}
	return pic.SVG(p.to)
}

// time gives the rows of an output their time.
func (p *plotSink) time(e row.End) {
	if p.zero.IsZero() {
		p.zero = e.Time
	}
	length := math.Inf(1)
	if e.Output {
		length = e.Time.Sub(p.output).Seconds()
		p.output = e.Time
		p.outputs++
	}
	for _, t := range p.things {
		if p.outputs == 2 && e.Output { // the first was as long as the second
			for i := range len(t.x) - t.untimed {
				t.y[longest][i] = length
			}
		}
		for ; t.untimed > 0; t.untimed-- {
			i := len(t.x) - t.untimed
			if t.x[i] = e.Time.Sub(p.zero).Seconds(); p.outputs > 1 {
				t.y[longest][i] = length
			}
			if t.ended && i > 0 && e.Output && i == len(t.x)-1 {
				t.x[i] -= max(0, length-t.length(i, p.o.Plot.Panels[0]))
			}
		}
	}
}
