// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/row"
)

// window has rows of a connection, as a tool that draws has them.
func window() *row.Schema {
	return &row.Schema{Tool: "win", Columns: []row.Column{
		{ID: "sock", Kind: row.Text}, {ID: "comm", Kind: row.Text}, {ID: "raddr", Kind: row.Addr}, {ID: "rport", Kind: row.Uint},
		{ID: "time_us", Kind: row.Uint}, {ID: "event", Kind: row.Text}, {ID: "cwnd", Kind: row.Uint},
	}}
}

var windowPlot = Plot{
	Key: []string{"sock", "raddr", "rport"}, Title: []string{"comm", "raddr", "rport"}, X: "time_us", Panels: [][]string{{"cwnd"}}, Units: []string{"segments"},
	Mark: "event", Marked: "retrans",
}

// texts of a picture, and the points of its longest line.
func readSVG(t *testing.T, svg []byte) (texts []string, points int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	in := false
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return texts, points
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			in = tok.Name.Local == "text"
			for _, a := range tok.Attr {
				if a.Name.Local == "points" {
					points = max(points, len(strings.Fields(a.Value)))
				}
			}
		case xml.CharData:
			if in {
				texts = append(texts, string(tok))
			}
		case xml.EndElement:
			in = false
		}
	}
}

func TestPlotHostileNames(t *testing.T) {
	s := window()
	o := Options{Schemas: []*row.Schema{s}, Plot: windowPlot}
	for _, h := range hostile {
		rows := []*row.Row{fill(s, h, h, six, 443, 1, "new", 10), fill(s, h, h, six, 443, 2000, "retrans", 5)}
		texts, _ := readSVG(t, render(t, "svg", o, rows))
		want := string(appendEscaped(nil, h)) + " [" + six.String() + "]:443"
		if !slices.Contains(texts, want) {
			t.Errorf("no text %q in %q", want, texts)
		}
		for _, also := range []string{"segments", "time (ms)", "cwnd", "retrans", "10"} {
			if !slices.Contains(texts, also) {
				t.Errorf("no %s in %q", also, texts)
			}
		}
	}
	h := hostile[len(hostile)-1] // too long for its line
	if _, err := png.Decode(bytes.NewReader(render(t, "png", o, []*row.Row{fill(s, h, h, six, 443, 1, "new", 10)}))); err != nil {
		t.Error(err)
	}
}

// Few rows, none, and rows without values are drawn too.
func TestPlotLittle(t *testing.T) {
	s := window()
	o := Options{Schemas: []*row.Schema{s}, Plot: windowPlot}
	for _, tt := range []struct {
		rows []*row.Row
		want string
	}{
		{nil, "nothing happened"},
		{[]*row.Row{fill(s, "a", "curl", nil, nil, 7, "new", 0)}, "curl"},
		{[]*row.Row{fill(s, "a", "curl", nil, nil, 7, "new", nil)}, "curl"},
	} {
		if texts, _ := readSVG(t, render(t, "svg", o, tt.rows)); !slices.Contains(texts, tt.want) {
			t.Errorf("no %q in %q", tt.want, texts)
		}
		if _, err := png.Decode(bytes.NewReader(render(t, "png", o, tt.rows))); err != nil {
			t.Error(err)
		}
	}
}

// Connections that have had one place in memory after each other are drawn apart.
func TestPlotReused(t *testing.T) {
	s := window()
	o := Options{Schemas: []*row.Schema{s}, Plot: windowPlot}
	o.Plot.Busiest = 3
	rows := []*row.Row{fill(s, "a", "curl", four, 80, 1, "new", 10), fill(s, "a", "curl", four, 443, 2, "new", 10), fill(s, "a", "curl", six, 443, 3, "new", 10)}
	texts, _ := readSVG(t, render(t, "svg", o, rows))
	for _, want := range []string{"curl " + four.String() + ":80", "curl " + four.String() + ":443", "curl [" + six.String() + "]:443"} {
		if !slices.Contains(texts, want) {
			t.Errorf("no %q in %q", want, texts)
		}
	}
}

// A picture does not grow with the events, and still shows the one that stands out.
func TestPlotMany(t *testing.T) {
	s := window()
	var rows []*row.Row
	for i := range 50_000 {
		cwnd := 100 + i%2*100
		if i == 25_000 {
			cwnd = 990
		}
		rows = append(rows, fill(s, "a", "curl", four, 80, 1_000_000+i*100, "rcv", cwnd))
	}
	o := Options{Schemas: []*row.Schema{s}, Plot: windowPlot}
	texts, points := readSVG(t, render(t, "svg", o, rows))
	if points < 1000 || points > 10_000 {
		t.Errorf("a line of %d points for %d rows", points, len(rows))
	}
	if !slices.Contains(texts, "time (s)") || !slices.Contains(texts, "3.0") {
		t.Errorf("no round seconds in %q", texts)
	}
	img, err := png.Decode(bytes.NewReader(render(t, "png", o, rows)))
	if err != nil {
		t.Fatal(err)
	}
	blue := 0
	x := (left + (wide-left-right)/2) * 2 // the peak is half way
	for y := range img.Bounds().Dy() {
		for dx := -2; dx <= 2; dx++ {
			if c := color.RGBAModel.Convert(img.At(x+dx, y)).(color.RGBA); c == (color.RGBA{0x1f, 0x5f, 0xbf, 0xff}) {
				blue++
				break
			}
		}
	}
	if blue < 200 {
		t.Errorf("the peak is %d pixels high", blue)
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		lo, hi float64
		n      int
		want   []float64
	}{
		{0, 11, 5, []float64{0, 5, 10}},
		{0, 1_050_000, 5, []float64{0, 500_000, 1_000_000}},
		{0.2341, 0.2389, 5, []float64{0.235, 0.236, 0.237, 0.238}},
		{-3, 4, 5, []float64{-2, 0, 2, 4}},
	} {
		a := axis{lo: tt.lo, hi: tt.hi}
		got := a.ticks(a.step(tt.n))
		if !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%g to %g: got %v, want %v", tt.lo, tt.hi, got, tt.want)
		}
	}
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1k", 250_000: "250k", 1.2e6: "1.2M", -5000: "-5k", 0.25: "0.25"} {
		if got := thousands(v); got != want {
			t.Errorf("%g is %s, want %s", v, got, want)
		}
	}
}

// TestShares: of a row that covers 100 ms, 75 of them are app, the rest idle. The second
// output is a second later, and is three connections that are idle for all of it.
func TestShares(t *testing.T) {
	s := &row.Schema{Tool: "flows", Columns: []row.Column{{ID: "service", Kind: row.Text}, {ID: "app_ms", Kind: row.Uint}, {ID: "idle_ms", Kind: row.Uint}, {ID: "loss_ms", Kind: row.Uint}}}
	o := Options{Schemas: []*row.Schema{s}, Plot: Plot{
		Key: []string{"service"}, Title: []string{"service"}, Panels: [][]string{{"app_ms", "idle_ms", "loss_ms"}}, Units: []string{"% of the time"}, Shares: true,
	}}
	draw := func(format string) []byte {
		var b bytes.Buffer
		k, err := New(format, &b, o)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1000, 0)
		for i, r := range []*row.Row{fill(s, "web", 75, 25, 0), fill(s, "web", 0, 3000, 0)} {
			if err := k.Row(r); err != nil {
				t.Fatal(err)
			}
			if err := k.End(row.End{Time: at.Add(time.Duration(i) * time.Second), Output: true, Last: i == 1}); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	texts, _ := readSVG(t, draw("svg"))
	for _, want := range []string{"web", "% of the time", "app_ms", "idle_ms", "100"} {
		if !slices.Contains(texts, want) {
			t.Errorf("no %s in %q", want, texts)
		}
	}
	if slices.Contains(texts, "loss_ms") {
		t.Errorf("loss_ms is named, and there is none: %q", texts)
	}
	img, err := png.Decode(bytes.NewReader(draw("png")))
	if err != nil {
		t.Fatal(err)
	}
	// The time goes from 0 to 1.1 s, the height from 0 to 100 %.
	pixel := func(second, percent float64) uint32 {
		x := left + second/1.1*(wide-left-right)
		y := titled + headed + high*(1-percent/100)
		r, g, b, _ := img.At(int(2*x), int(2*y)).RGBA()
		return r>>8<<16 | g>>8<<8 | b>>8
	}
	for _, c := range []struct {
		second, percent float64
		part            int
	}{{.05, 10, 0}, {.05, 70, 0}, {.05, 80, 1}, {.05, 97, 1}, {.3, 10, 1}, {.9, 90, 1}} {
		if got, want := pixel(c.second, c.percent), uint32(areas[c.part]); got != want {
			t.Errorf("at %g s and %g %% the colour is %06x, want %06x", c.second, c.percent, got, want)
		}
	}
}

// TestSharesEnd: what ends 100 ms after an output that it is in has its last row at once after that
// one, although the next output is a second later.
func TestSharesEnd(t *testing.T) {
	s := &row.Schema{Tool: "flows", Columns: []row.Column{{ID: "service", Kind: row.Text}, {ID: "app_ms", Kind: row.Uint}, {ID: "closed", Kind: row.Bool}}}
	o := Options{Schemas: []*row.Schema{s}, Plot: Plot{
		Key: []string{"service"}, Title: []string{"service"}, Panels: [][]string{{"app_ms"}}, Units: []string{"% of the time"}, Shares: true, Ended: "closed",
	}}
	k, err := New("svg", &bytes.Buffer{}, o)
	if err != nil {
		t.Fatal(err)
	}
	last := fill(s, "web", 100, 0)
	*last.Get("closed") = row.Cell{Kind: row.Bool, N: 1}
	open := fill(s, "web", 1000, 0)
	*open.Get("closed") = row.Cell{}
	at := time.Unix(1000, 0)
	for i, r := range []*row.Row{open, open, last} {
		if err := k.Row(r); err != nil {
			t.Fatal(err)
		}
		if err := k.End(row.End{Time: at.Add(time.Duration(i) * time.Second), Output: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range k.(*plotSink).things {
		if got := x.x[2] - x.x[1]; math.Abs(got-0.1) > 1e-6 {
			t.Errorf("the last row ends %g s after the one before, want 0.1", got)
		}
	}
}
