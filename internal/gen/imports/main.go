// SPDX-License-Identifier: Apache-2.0

// Command imports draws docs/pictures/imports.svg: the packages of the product, what
// each is for, and which imports which. Run it from the project's root, by make
// pictures.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const picture = "docs/pictures/imports.svg"

func main() {
	svg, err := draw(".")
	if err == nil {
		err = os.WriteFile(picture, svg, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
}

// A node is a package, or all tools.
type node struct {
	name, doc string
	imports   map[string]bool
	level     int // one more than the highest that it imports
	place     int // in its level, from the left
}

// allTools is the node of the tools' own packages.
const allTools = "tools/*"

func draw(root string) ([]byte, error) {
	nodes, err := load(root)
	if err != nil {
		return nil, err
	}
	reduce(nodes)
	return render(arrange(nodes)), nil
}

// load asks go for the packages that the product is made of.
func load(root string) (map[string]*node, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}\t{{$.Doc}}\t{{join $.Imports \" \"}}{{end}}{{end}}", "./cmd/seine")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return parse(string(out)), nil
}

func parse(list string) map[string]*node {
	nodes := map[string]*node{}
	for line := range strings.Lines(list) {
		words := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(words) != 3 {
			continue
		}
		name := short(words[0])
		n := nodes[name]
		if n == nil {
			n = &node{name: name, doc: purpose(words[1]), imports: map[string]bool{}}
			nodes[name] = n
		}
		for _, imp := range strings.Fields(words[2]) {
			if s := short(imp); strings.HasPrefix(imp, "seine/") && s != name {
				n.imports[s] = true
			}
		}
	}
	if n := nodes[allTools]; n != nil {
		n.doc = "one folder for each tool: points, views, columns, demo"
	}
	return nodes
}

// short is the name of a package in the picture.
func short(path string) string {
	path = strings.TrimPrefix(path, "seine/")
	if strings.HasPrefix(path, "tools/") {
		return allTools
	}
	return path
}

// purpose is a package's first sentence without its beginning.
func purpose(doc string) string {
	doc = strings.TrimSuffix(doc, ".")
	if _, rest, ok := strings.Cut(doc, " "); ok {
		_, doc, _ = strings.Cut(rest, " ")
	}
	doc, _, _ = strings.Cut(doc, ": ")
	return doc
}

// reduce leaves out imports that another import has too, so that a line leads only to
// the nearest.
func reduce(nodes map[string]*node) {
	reach := map[string]map[string]bool{}
	var all func(name string) map[string]bool
	all = func(name string) map[string]bool {
		if reach[name] == nil {
			reach[name] = map[string]bool{}
			for imp := range nodes[name].imports {
				reach[name][imp] = true
				maps.Copy(reach[name], all(imp))
				nodes[name].level = max(nodes[name].level, nodes[imp].level+1)
			}
		}
		return reach[name]
	}
	for name := range nodes {
		all(name)
	}
	for _, n := range nodes {
		for _, far := range slices.Collect(maps.Keys(n.imports)) {
			for near := range n.imports {
				if near != far && reach[near][far] {
					delete(n.imports, far)
					break
				}
			}
		}
	}
}

// arrange makes a row of each level, the lowest first. Packages stand near those that
// they import.
func arrange(nodes map[string]*node) (rows [][]*node) {
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		for len(rows) <= n.level {
			rows = append(rows, nil)
		}
		n.place = len(rows[n.level])
		rows[n.level] = append(rows[n.level], n)
	}
	at := func(n *node) float64 { // 0 is left, 1 right
		return (float64(n.place) + 0.5) / float64(len(rows[n.level]))
	}
	for range 8 {
		for _, row := range rows {
			want := map[*node]float64{}
			for _, n := range row {
				sum, of := 0.0, 0
				for _, o := range slices.Concat(rows...) { // always in the same order: sums are the same
					if n.imports[o.name] || o.imports[n.name] {
						sum, of = sum+at(o), of+1
					}
				}
				want[n] = sum / float64(max(of, 1))
			}
			slices.SortStableFunc(row, func(a, b *node) int { return cmp.Or(cmp.Compare(want[a], want[b]), strings.Compare(a.name, b.name)) })
			for i, n := range row {
				n.place = i
			}
		}
	}
	return rows
}

// Sizes of the picture.
const (
	boxWidth, boxHeight = 148, 76
	gapX, gapY          = 14, 46
	margin              = 16
	lineLength, lines   = 24, 4
)

func render(rows [][]*node) []byte {
	most := 0
	for _, row := range rows {
		most = max(most, len(row))
	}
	width := 2*margin + most*(boxWidth+gapX) - gapX
	height := 2*margin + len(rows)*(boxHeight+gapY) - gapY
	at := map[string][2]int{}
	for level, row := range rows {
		for i, n := range row {
			at[n.name] = [2]int{width*(2*i+1)/(2*len(row)) - boxWidth/2, margin + (len(rows)-1-level)*(boxHeight+gapY)}
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\">\n", width, height, width, height)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n")
	for _, row := range slices.Backward(rows) {
		for _, n := range row {
			for _, imp := range slices.Sorted(maps.Keys(n.imports)) {
				x, y, X, Y := at[n.name][0]+boxWidth/2, at[n.name][1]+boxHeight, at[imp][0]+boxWidth/2, at[imp][1]
				fmt.Fprintf(&b, "<path d=\"M%d %d C%d %d %d %d %d %d\" fill=\"none\" stroke=\"#7a8ba0\" stroke-width=\"1.2\"/>\n", x, y, x, y+gapY, X, Y-gapY, X, Y)
			}
		}
	}
	for _, row := range slices.Backward(rows) {
		for _, n := range row {
			x, y := at[n.name][0], at[n.name][1]
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"#eef3f9\" stroke=\"#35577d\"/>\n", x, y, boxWidth, boxHeight)
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" font-size=\"13\" font-weight=\"bold\" fill=\"#1c2b3a\">%s</text>\n", x+8, y+18, html.EscapeString(n.name))
			for i, l := range wrap(n.doc) {
				fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" font-size=\"10\" fill=\"#333333\">%s</text>\n", x+8, y+32+12*i, html.EscapeString(l))
			}
		}
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

// wrap breaks a text into the lines that a box has room for.
func wrap(text string) (out []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > lineLength {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if out = append(out, line); len(out) > lines {
		out = out[:lines]
		out[lines-1] += " …"
	}
	return out
}
