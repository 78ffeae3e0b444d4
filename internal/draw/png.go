// SPDX-License-Identifier: Apache-2.0

package draw

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// scale is how many pixels a point has.
const scale = 2

// PNG writes the picture as pixels.
func (p *Picture) PNG(w io.Writer) error {
	img := image.NewRGBA(image.Rect(0, 0, int(p.Wide*scale), int(p.High*scale)))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	for _, s := range p.shapes {
		c := image.NewUniform(color.RGBA{R: uint8(s.colour >> 16), G: uint8(s.colour >> 8), B: uint8(s.colour), A: 0xff})
		if s.text == "" {
			stroke(img, c, s)
		} else {
			write(img, c, s)
		}
	}
	return png.Encode(w, img)
}

// stroke fills, for each piece of a line, a rectangle that reaches half a
// width beyond its ends, so that right angles have their corners.
func stroke(img draw.Image, c image.Image, s shape) {
	half := s.size * scale / 2
	box := bounds(s.points, half).Intersect(img.Bounds())
	z := vector.NewRasterizer(box.Dx(), box.Dy())
	to := func(x, y float64) (float32, float32) {
		return float32(x - float64(box.Min.X)), float32(y - float64(box.Min.Y))
	}
	for i, b := range s.points[1:] {
		a := s.points[i]
		ax, ay, bx, by := a.X*scale, a.Y*scale, b.X*scale, b.Y*scale
		length := math.Hypot(bx-ax, by-ay)
		if length == 0 {
			continue
		}
		ux, uy := (bx-ax)/length*half, (by-ay)/length*half
		z.MoveTo(to(ax-ux-uy, ay-uy+ux))
		z.LineTo(to(ax-ux+uy, ay-uy-ux))
		z.LineTo(to(bx+ux+uy, by+uy-ux))
		z.LineTo(to(bx+ux-uy, by+uy+ux))
		z.ClosePath()
	}
	z.Draw(img, box, c, image.Point{})
}

// bounds is the pixels that a line may touch.
func bounds(points []Point, half float64) image.Rectangle {
	lo, hi := points[0], points[0]
	for _, at := range points {
		lo = Point{min(lo.X, at.X), min(lo.Y, at.Y)}
		hi = Point{max(hi.X, at.X), max(hi.Y, at.Y)}
	}
	room := 2 * half
	return image.Rect(int(math.Floor(lo.X*scale-room)), int(math.Floor(lo.Y*scale-room)), int(math.Ceil(hi.X*scale+room)), int(math.Ceil(hi.Y*scale+room)))
}

func write(img draw.Image, c image.Image, s shape) {
	d := font.Drawer{Dst: img, Src: c, Face: face(s.size * scale)}
	back := float64(d.MeasureString(s.text)) / 64 * float64(s.anchor) / 2
	d.Dot = fixed.Point26_6{X: fixed.Int26_6((s.points[0].X*scale - back) * 64), Y: fixed.Int26_6(s.points[0].Y * scale * 64)}
	d.DrawString(s.text)
}
