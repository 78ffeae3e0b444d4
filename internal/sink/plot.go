// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"seine/internal/row"
)

// Plot says how rows become a picture: for each thing that Key names, one above
// the other, a panel for each list of columns, over the column X.
type Plot struct {
	Key     string     // tells things apart
	Title   []string   // columns whose last value heads its panels
	X       string     // in microseconds; the axis is in seconds
	Panels  [][]string // columns to draw as lines
	Mark    string     // rows whose column Mark holds Marked get a cross
	Marked  string
	Busiest int // things to draw, those with the most rows; 0: one
}

// most is how many points of one thing are kept: beyond it every other goes.
const most = 1 << 16

type plotSink struct {
	*writer
	o      Options
	png    bool
	things map[string]*thing
}

// thing is what is drawn of one key.
type thing struct {
	key, title string
	rows       int
	step       int // only every so many rows are kept
	x          []float64
	y          map[string][]float64
	marks      []float64
}

func newSVG(w *writer, o Options) (row.Sink, error) { return newPlot(w, o, false) }
func newPNG(w *writer, o Options) (row.Sink, error) { return newPlot(w, o, true) }

func newPlot(w *writer, o Options, png bool) (row.Sink, error) {
	return &plotSink{writer: w, o: o, png: png, things: map[string]*thing{}}, nil
}

func (p *plotSink) Row(r *row.Row) error {
	k, x := r.Get(p.o.Plot.Key), r.Schema.Index(p.o.Plot.X)
	if k == nil || x < 0 {
		return nil // a view that is not drawn
	}
	t := p.things[k.S]
	if t == nil {
		key := k.Clone().S
		t = &thing{key: key, step: 1, y: map[string][]float64{}}
		p.things[key] = t
	}
	at := r.Schema.Columns[x].Value(&r.Cells[x]) / 1e6
	if m := r.Get(p.o.Plot.Mark); m != nil && m.S == p.o.Plot.Marked {
		t.marks = append(t.marks, at)
	}
	if t.rows++; t.rows%t.step != 0 {
		return nil
	}
	t.title = ""
	for _, id := range p.o.Plot.Title {
		if i := r.Schema.Index(id); i >= 0 && r.Cells[i].Kind != row.Null {
			t.title += " " + text(&r.Schema.Columns[i], &r.Cells[i])
		}
	}
	t.x = append(t.x, at)
	for _, panel := range p.o.Plot.Panels {
		for _, id := range panel {
			if i := r.Schema.Index(id); i >= 0 {
				t.y[id] = append(t.y[id], r.Schema.Columns[i].Value(&r.Cells[i]))
			}
		}
	}
	if len(t.x) >= most {
		t.thin()
	}
	return nil
}

// text is a cell as words of a title.
func text(col *row.Column, c *row.Cell) string {
	switch c.Kind {
	case row.Addr:
		return c.IP().String()
	case row.Text:
		return string(appendEscaped(nil, c.S))
	}
	return fmt.Sprint(col.Value(c))
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

func (p *plotSink) End(e row.End) error {
	if !e.Last {
		return nil
	}
	things := slices.SortedFunc(maps.Values(p.things), func(a, b *thing) int {
		return cmp.Or(cmp.Compare(b.rows, a.rows), cmp.Compare(a.key, b.key))
	})
	things = things[:min(len(things), max(p.o.Plot.Busiest, 1))]
	var plots [][]*plot.Plot
	for _, t := range things {
		for i, panel := range p.o.Plot.Panels {
			pl, err := p.panel(t, panel, i == 0)
			if err != nil {
				return fmt.Errorf("drawing: %w", err)
			}
			plots = append(plots, []*plot.Plot{pl})
		}
	}
	if len(plots) == 0 {
		plots = [][]*plot.Plot{{plot.New()}}
		plots[0][0].Title.Text = "nothing happened"
	}
	return p.draw(plots)
}

var colours = []color.Color{color.RGBA{R: 0x1f, G: 0x5f, B: 0xbf, A: 0xff}, color.RGBA{R: 0xd0, G: 0x80, A: 0xff}}

// panel draws columns of a thing.
func (p *plotSink) panel(t *thing, columns []string, first bool) (*plot.Plot, error) {
	pl := plot.New()
	if first {
		pl.Title.Text = t.title
	}
	pl.X.Label.Text = "time (s)"
	pl.Legend.Top = true
	pl.Add(plotter.NewGrid())
	for n, id := range columns {
		xys := make(plotter.XYs, len(t.x))
		for i := range xys {
			xys[i] = plotter.XY{X: t.x[i], Y: t.y[id][i]}
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.StepStyle = plotter.PostStep
		line.Color = colours[n%len(colours)]
		pl.Add(line)
		pl.Legend.Add(id, line)
	}
	if len(t.marks) > 0 {
		marks := make(plotter.XYs, len(t.marks))
		for i, x := range t.marks {
			marks[i].X = x
		}
		crosses, err := plotter.NewScatter(marks)
		if err != nil {
			return nil, err
		}
		crosses.Shape = draw.CrossGlyph{}
		crosses.Color = color.RGBA{R: 0xc0, A: 0xff}
		crosses.Radius = vg.Points(4)
		pl.Add(crosses)
		pl.Legend.Add(p.o.Plot.Marked, crosses)
	}
	return pl, nil
}

// draw puts the panels one above the other.
func (p *plotSink) draw(plots [][]*plot.Plot) error {
	wide, high := vg.Points(800), vg.Points(260*float64(len(plots)))
	var c vg.CanvasWriterTo
	if p.png {
		c = vgimg.PngCanvas{Canvas: vgimg.New(wide, high)}
	} else {
		c = vgsvg.New(wide, high)
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(10), PadX: vg.Points(2), PadTop: vg.Points(6), PadRight: vg.Points(8)}
	for i, cs := range plot.Align(plots, tiles, draw.New(c)) {
		plots[i][0].Draw(cs[0])
	}
	_, err := c.WriteTo(p.to)
	return err
}
