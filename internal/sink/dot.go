// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/emicklei/dot"

	"seine/internal/row"
)

// A Graph says how rows become a picture of who talked to whom.
type Graph struct {
	From, To []string // the columns that name the two ends: comm pid, raddr rport
	Sum      []string // columns to add up along an edge: tx_bytes rx_bytes
	Noun     string   // what a row is, for the label of an edge; empty: sessions
}

// maxEdges limits a graph: nobody could read a larger one. The graph says how many rows are left
// out.
const maxEdges = 10_000

// dotSink gathers rows and writes one Graphviz digraph when all are in.
type dotSink struct {
	*writer
	graph Graph
	plans plans[dotPlan]
	edges map[string]*dotEdge
	order []*dotEdge
	left  uint64 // rows that found no room
	key   []byte
	done  bool
}

type dotPlan struct{ from, to, sum []int }

type dotEdge struct {
	from, to string
	rows     uint64
	sums     []dotSum
}

type dotSum struct {
	id    string
	total row.Cell
	div   uint64
}

func newDot(w *writer, o Options) (row.Sink, error) {
	if len(o.Graph.From) == 0 || len(o.Graph.To) == 0 {
		return nil, errors.New("dot: these rows cannot be drawn as a graph: they do not have two ends")
	}
	d := &dotSink{writer: w, graph: o.Graph, edges: map[string]*dotEdge{}}
	if d.graph.Noun == "" {
		d.graph.Noun = "sessions"
	}
	d.plans.make = d.plan
	for _, s := range o.Schemas {
		if _, err := d.plans.of(s); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *dotSink) plan(s *row.Schema) (*dotPlan, error) {
	p := &dotPlan{}
	for _, l := range []struct {
		ids []string
		to  *[]int
	}{{d.graph.From, &p.from}, {d.graph.To, &p.to}, {d.graph.Sum, &p.sum}} {
		for _, id := range l.ids {
			i := s.Index(id)
			if i < 0 {
				return nil, fmt.Errorf("dot: %w", row.Unknown(id, s))
			}
			*l.to = append(*l.to, i)
		}
	}
	return p, nil
}

func (d *dotSink) Row(r *row.Row) error {
	p, err := d.plans.of(r.Schema)
	if err != nil {
		return err
	}
	d.key = appendNode(d.key[:0], r, p.from)
	cut := len(d.key)
	d.key = appendNode(append(d.key, 0), r, p.to)
	e := d.edges[string(d.key)]
	if e == nil {
		if len(d.edges) >= maxEdges {
			d.left++
			return nil
		}
		e = &dotEdge{from: string(d.key[:cut]), to: string(d.key[cut+1:])}
		for _, i := range p.sum {
			e.sums = append(e.sums, dotSum{id: r.Schema.Columns[i].ID, div: r.Schema.Columns[i].Div})
		}
		d.edges[string(d.key)] = e
		d.order = append(d.order, e)
	}
	e.rows++
	for n, i := range p.sum {
		if c := &r.Cells[i]; c.Kind == row.Uint || c.Kind == row.Int {
			t := &e.sums[n].total
			t.Kind, t.N = c.Kind, t.N+c.N
		}
	}
	return nil
}

// appendNode writes the name of a node: values with a space between them, but
// an address and its port as one.
func appendNode(b []byte, r *row.Row, cells []int) []byte {
	start := len(b)
	for n, i := range cells {
		c := &r.Cells[i]
		if c.Kind == row.Null {
			continue
		}
		port := c.Kind == row.Uint && n > 0 && r.Cells[cells[n-1]].Kind == row.Addr
		if len(b) > start && !port {
			b = append(b, ' ')
		}
		switch c.Kind {
		case row.Uint, row.Int:
			if port {
				b = append(b, ':')
			}
			b = appendNumber(b, c, r.Schema.Columns[i].Div)
		case row.Addr:
			next := n + 1
			if c.IP().Is6() && next < len(cells) && r.Cells[cells[next]].Kind == row.Uint {
				b = append(appendAddr(append(b, '['), c), ']')
			} else {
				b = appendAddr(b, c)
			}
		case row.Bool:
			b = appendBool(b, c)
		default:
			b = appendEscaped(b, c.S)
		}
	}
	return b
}

func (d *dotSink) End(e row.End) error {
	if !e.Last || d.done {
		return nil
	}
	d.done = true
	g := dot.NewGraph(dot.Directed)
	g.Attr("rankdir", "LR")
	if d.left > 0 {
		g.Attr("label", fmt.Sprintf("%d %s are not drawn: more than %d edges", d.left, d.graph.Noun, maxEdges))
	}
	for _, e := range d.order {
		from := g.Node(cmp.Or(e.from, "unknown from")).Label(label(e.from)).Box()
		to := g.Node(cmp.Or(e.to, "unknown to")).Label(label(e.to))
		words := []string{plural(e.rows, d.graph.Noun)}
		for _, s := range e.sums {
			if s.total.Kind != row.Null {
				words = append(words, s.words())
			}
		}
		g.Edge(from, to).Label(strings.Join(words, ", "))
	}
	d.buf = append(d.buf, g.String()...)
	return d.flush()
}

// label writes what Graphviz would take for an entity (&lt;) as it is. Quotes
// and backslashes are escaped by the library.
func label(s string) string {
	if s == "" {
		return "unknown"
	}
	return strings.ReplaceAll(s, "&", "&amp;")
}

func plural(n uint64, noun string) string {
	if n == 1 {
		noun = strings.TrimSuffix(noun, "s")
	}
	return strconv.FormatUint(n, 10) + " " + noun
}

// words says a sum: tx 1.5 MB for tx_bytes, as it is for other columns.
func (s *dotSum) words() string {
	name, isBytes := strings.CutSuffix(s.id, "_bytes")
	if !isBytes {
		return s.id + " " + string(appendNumber(nil, &s.total, s.div))
	}
	n, unit := float64(s.total.N), "B"
	for _, next := range []string{"KB", "MB", "GB", "TB", "PB", "EB"} {
		if n < 1024 {
			break
		}
		n, unit = n/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%s %d B", name, s.total.N)
	}
	return fmt.Sprintf("%s %.1f %s", name, n, unit)
}
