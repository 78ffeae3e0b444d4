// SPDX-License-Identifier: Apache-2.0

package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
)

// SVG writes the picture as text.
func (p *Picture) SVG(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" font-family="Go, Helvetica, Arial, sans-serif">`+"\n", p.Wide, p.High)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	for _, s := range p.shapes {
		if s.text == "" {
			fmt.Fprintf(&b, `<polyline fill="none" stroke="#%06x" stroke-width="%s" stroke-linecap="square" points="`, uint32(s.colour), short(s.size))
			for i, at := range s.points {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(short(at.X) + "," + short(at.Y))
			}
			b.WriteString("\"/>\n")
			continue
		}
		fmt.Fprintf(&b, `<text x="%s" y="%s" font-size="%s" fill="#%06x" text-anchor="%s">`, short(s.points[0].X), short(s.points[0].Y), short(s.size),
			uint32(s.colour), [...]string{"start", "middle", "end"}[s.anchor])
		if err := xml.EscapeText(&b, []byte(s.text)); err != nil {
			return err
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// short writes a length with no more digits than can be seen.
func short(v float64) string {
	b := strconv.AppendFloat(nil, v, 'f', 2, 64)
	return string(bytes.TrimRight(bytes.TrimRight(b, "0"), "."))
}
