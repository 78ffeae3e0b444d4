// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"math"
	"slices"
	"strconv"

	"seine/internal/draw"
)

// Where things are in a picture, in points.
const (
	wide, left, right = 900, 72, 24
	titled            = 38 // above the panels of a thing
	headed            = 26 // above each: unit and legend
	high              = 170
	under             = 12 // below each
	timed             = 46 // below the last: the time
	letter            = 12
)

const (
	black draw.Colour = 0x222222
	grey  draw.Colour = 0x555555
	pale  draw.Colour = 0xe4e4e4
	red   draw.Colour = 0xc81e1e
	pink  draw.Colour = 0xf6cccc
)

var colours = []draw.Colour{0x1f5fbf, 0xd9820a, 0x2e8b57, 0x7b4ea3}

// axis maps values to places.
type axis struct {
	lo, hi   float64 // values
	from, to float64 // their places
	unit     string  // that the value 1 has per of
	per      float64
}

func (a axis) at(v float64) float64 { return a.from + (v-a.lo)/(a.hi-a.lo)*(a.to-a.from) }

// step is a round number that goes into the axis n times at most.
func (a axis) step(n int) float64 {
	least := (a.hi - a.lo) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= least*.999 {
			return f * power
		}
	}
	return 10 * power
}

// ticks are the multiples of a step that are on the axis.
func (a axis) ticks(step float64) (at []float64) {
	last := math.Floor(a.hi/step + 1e-6)
	for i := math.Ceil(a.lo/step - 1e-6); i <= last; i++ {
		at = append(at, i*step+0) // + 0: never -0
	}
	return at
}

// draw puts the panels of all things below each other, over the same time.
func (p *Plot) draw(things []*thing) *draw.Picture {
	each := float64(titled + (headed+high)*len(p.Panels) + under*(len(p.Panels)-1) + timed)
	pic := &draw.Picture{Wide: wide, High: max(float64(len(things))*each, 60)}
	if len(things) == 0 {
		pic.Text(16, black, draw.Point{X: wide / 2, Y: 36}, draw.Middle, "nothing happened")
		return pic
	}
	x := axis{lo: math.Inf(1), hi: math.Inf(-1), from: left, to: wide - right}
	for _, t := range things {
		x.lo, x.hi = min(x.lo, slices.Min(t.x)), max(x.hi, slices.Max(t.x))
		if p.Shares {
			x.lo = min(x.lo, t.x[0]-t.length(0, p.Panels[0]))
		}
		if len(t.marks) > 0 {
			x.lo, x.hi = min(x.lo, slices.Min(t.marks)), max(x.hi, slices.Max(t.marks))
		}
	}
	if p.Shares { // from the first row on
		for _, t := range things {
			for i := range t.x {
				t.x[i] -= x.lo
			}
		}
		x.lo, x.hi = 0, x.hi-x.lo
	}
	if x.hi-x.lo < 1e-6 {
		x.hi = x.lo + 1e-6
	}
	x.unit, x.per = "s", 1
	if length := x.hi - x.lo; length < 1e-3 {
		x.unit, x.per = "µs", 1e6
	} else if length < 1 {
		x.unit, x.per = "ms", 1e3
	}
	for i, t := range things {
		top := each * float64(i)
		title, size := string(t.title), 16.0
		if w := draw.Width(size, title); w > wide-2*right {
			size *= (wide - 2*right) / w
		}
		pic.Text(size, black, draw.Point{X: wide / 2, Y: top + 28}, draw.Middle, title)
		top += titled
		for n := range p.Panels {
			top += headed
			p.panel(pic, t, n, x, top)
			top += high + under
		}
		pic.Text(letter, grey, draw.Point{X: (left + wide - right) / 2, Y: top + 24}, draw.Middle, "time ("+x.unit+")")
	}
	return pic
}

// panel draws list n of columns of a thing.
func (p *Plot) panel(pic *draw.Picture, t *thing, n int, x axis, top float64) {
	columns := p.Panels[n]
	y := axis{from: top + high, to: top}
	if p.Shares {
		y.hi = 100
	}
	for _, id := range columns {
		if p.Shares {
			break
		}
		for _, v := range t.y[id] {
			if !math.IsNaN(v) {
				y.lo, y.hi = min(y.lo, v), max(y.hi, v)
			}
		}
	}
	if y.lo == y.hi {
		y.hi = 1
	}
	step := y.step(5)
	y.lo, y.hi = math.Floor(y.lo/step)*step, math.Ceil(y.hi/step)*step
	for _, v := range y.ticks(step) {
		at := math.Floor(y.at(v)) + .5
		pic.Line(1, pale, draw.Point{X: x.from, Y: at}, draw.Point{X: x.to, Y: at})
		pic.Text(letter, grey, draw.Point{X: x.from - 8, Y: at + 4}, draw.End, thousands(v))
	}
	step = x.step(12)
	digits := max(0, -int(math.Floor(math.Log10(step*x.per)+1e-6)))
	for _, v := range x.ticks(step) {
		at := math.Floor(x.at(v)) + .5
		pic.Line(1, pale, draw.Point{X: at, Y: y.from}, draw.Point{X: at, Y: y.to})
		if n == len(p.Panels)-1 {
			pic.Line(1, grey, draw.Point{X: at, Y: y.from}, draw.Point{X: at, Y: y.from + 4})
			pic.Text(letter, grey, draw.Point{X: at, Y: y.from + 18}, draw.Middle, strconv.FormatFloat(v*x.per, 'f', digits, 64))
		}
	}
	var marks []float64
	for _, v := range t.marks {
		marks = append(marks, halves(x.at(v)))
	}
	slices.Sort(marks)
	marks = slices.Compact(marks) // no place is marked twice
	for _, at := range marks {
		pic.Line(1, pink, draw.Point{X: at, Y: y.from}, draw.Point{X: at, Y: y.to})
	}
	floor := math.Floor(y.from) + .5
	pic.Line(1, grey, draw.Point{X: x.from, Y: floor}, draw.Point{X: x.to, Y: floor})
	if p.Shares {
		columns = p.shares(pic, t, columns, x, y)
	} else {
		for i, id := range columns {
			pic.Line(1.6, colours[i%len(colours)], steps(t, id, x, y)...)
		}
	}
	for _, at := range marks {
		cross(pic, draw.Point{X: at, Y: y.from})
	}
	if n < len(p.Units) {
		pic.Text(letter, grey, draw.Point{X: x.from - 8, Y: top - 10}, draw.Start, p.Units[n])
	}
	p.legend(pic, columns, len(marks) > 0, draw.Point{X: x.to, Y: top - 10})
}

// legend writes what is what, up to its right end.
func (p *Plot) legend(pic *draw.Picture, columns []string, marked bool, end draw.Point) {
	const sample, gap = 28, 12
	names := columns
	if marked {
		names = append(slices.Clone(columns), p.Marked)
	}
	at := draw.Point{X: end.X + gap, Y: end.Y}
	for _, name := range names {
		at.X -= sample + draw.Width(letter, name) + gap
	}
	for i, name := range names {
		if i < len(columns) {
			width, colour := 1.6, colours[i%len(colours)]
			if p.Shares {
				width, colour = 8, p.colour(name)
			}
			pic.Line(width, colour, draw.Point{X: at.X, Y: at.Y - 4}, draw.Point{X: at.X + sample - 6, Y: at.Y - 4})
		} else {
			cross(pic, draw.Point{X: at.X + sample - 12, Y: at.Y - 4})
		}
		pic.Text(letter, black, draw.Point{X: at.X + sample, Y: at.Y}, draw.Start, name)
		at.X += sample + draw.Width(letter, name) + gap
	}
}

func cross(pic *draw.Picture, at draw.Point) {
	const r = 4
	pic.Line(1.5, red, draw.Point{X: at.X - r, Y: at.Y - r}, draw.Point{X: at.X + r, Y: at.Y + r})
	pic.Line(1.5, red, draw.Point{X: at.X - r, Y: at.Y + r}, draw.Point{X: at.X + r, Y: at.Y - r})
}

// halves is a place to half a point: more cannot be seen.
func halves(v float64) float64 { return math.Round(v*2) / 2 }

// steps is a column over time; a value holds until the next one. Where many
// fall on one place, the line goes to the least and the greatest of them.
func steps(t *thing, id string, x, y axis) (line []draw.Point) {
	add := func(to draw.Point) {
		n := len(line)
		switch {
		case n > 0 && line[n-1] == to:
		case n > 1 && line[n-1].Y == to.Y && line[n-2].Y == to.Y:
			line[n-1] = to // straight on
		default:
			line = append(line, to)
		}
	}
	var last float64
	for i := 0; i < len(t.x); {
		at := halves(x.at(t.x[i]))
		lo, hi, seen := math.Inf(1), math.Inf(-1), false
		if len(line) > 0 {
			add(draw.Point{X: at, Y: last})
		}
		for ; i < len(t.x) && halves(x.at(t.x[i])) == at; i++ {
			if v := t.y[id][i]; !math.IsNaN(v) {
				last, seen = halves(y.at(v)), true
				lo, hi = min(lo, last), max(hi, last)
			}
		}
		if seen {
			add(draw.Point{X: at, Y: lo})
			add(draw.Point{X: at, Y: hi})
			add(draw.Point{X: at, Y: last})
		}
	}
	return line
}

// thousands writes 250000 as 250k.
func thousands(v float64) string {
	suffix := ""
	for _, s := range []string{"k", "M", "G", "T"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, suffix = v/1000, s
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + suffix
}
