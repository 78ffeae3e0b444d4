// SPDX-License-Identifier: Apache-2.0

// Package draw makes pictures of lines and words. A picture is described once
// and written as SVG or as PNG.
package draw

import (
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// A Picture is what has been drawn, in order. Lengths are in points, from the
// corner that is top left.
type Picture struct {
	Wide, High float64
	shapes     []shape
}

// A Point is a place in a picture.
type Point struct{ X, Y float64 }

// A Colour is 0xRRGGBB.
type Colour uint32

// An Anchor says which part of a text is at its place.
type Anchor int

// Texts stand on their place: they begin, have their middle, or end there.
const (
	Start Anchor = iota
	Middle
	End
)

// shape is a line, or a text.
type shape struct {
	points []Point
	size   float64 // how wide the line is, how high the letters are
	colour Colour
	text   string
	anchor Anchor
}

// Line draws a line through points.
func (p *Picture) Line(width float64, c Colour, points ...Point) {
	if len(points) > 1 {
		p.shapes = append(p.shapes, shape{points: points, size: width, colour: c})
	}
}

// Box fills a rectangle between two corners. It draws a line that ends half its width before the
// edge, because line ends are square.
func (p *Picture) Box(c Colour, a, b Point) {
	wide, high := b.X-a.X, b.Y-a.Y
	if wide < 0 {
		a.X, b.X, wide = b.X, a.X, -wide
	}
	if high < 0 {
		a.Y, b.Y, high = b.Y, a.Y, -high
	}
	const least = 0.01 // a line has a direction
	if wide > high {
		y, in := a.Y+high/2, (high-least)/2
		p.Line(high, c, Point{a.X + in, y}, Point{b.X - in, y})
	} else {
		x, in := a.X+wide/2, (wide-least)/2
		p.Line(wide, c, Point{x, a.Y + in}, Point{x, b.Y - in})
	}
}

// Text writes a text, which must be printable.
func (p *Picture) Text(size float64, c Colour, at Point, a Anchor, text string) {
	p.shapes = append(p.shapes, shape{points: []Point{at}, size: size, colour: c, text: text, anchor: a})
}

// Width is the room that a text takes. The reader of an SVG chooses the font:
// a wide one has room too.
func Width(size float64, text string) float64 {
	return 1.17 * float64(font.MeasureString(face(size), text)) / 64
}

var letters = sync.OnceValue(func() *opentype.Font {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		panic(err) // it is a part of the program
	}
	return f
})

func face(size float64) font.Face {
	f, err := opentype.NewFace(letters(), &opentype.FaceOptions{Size: size, DPI: 72})
	if err != nil {
		panic(err)
	}
	return f
}
