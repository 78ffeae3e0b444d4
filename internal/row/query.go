// SPDX-License-Identifier: Apache-2.0

package row

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Query says what is done to rows on their way to a sink. The zero value hands
// all of them on as they come.
//
//	Name ─► Where ─► Fold ─► By ─► Summary ─► Rate ─► Sort ─► Limit ─► sink
type Query struct {
	View    string   // rows of this kind alone; empty: all kinds
	Where   []string // conditions that a row must meet, all of them
	Fold    []string // rows of an output that agree in these columns become one; nil: none do
	By      []string // columns to group by; nil: rows are not grouped
	Summary bool     // numbers take the place of histograms

	Rate uint64            // at most so many rows a second; 0: all
	Held func(rows uint64) // told now and then how many rows Rate holds back; may be nil
	Now  func() time.Time  // the clock of Rate; nil: time.Now

	Sort      string // the column that orders an output; empty: rows as they come
	Ascending bool
	Top       int // rows of an output; 0: all

	Limit   uint64 // ends after so many rows; 0: never
	Outputs bool   // Limit counts outputs, not rows
}

// heldEvery is how often Held is called at most.
const heldEvery = 5 * time.Second

// A Plan is a query over rows of known schemas. The caller that makes a sink for the rows that
// come out finds their schemas here, and may still change the stages after Summary.
type Plan struct {
	Query
	Schemas []*Schema // of the rows that come out

	all     []*Schema // that may come in
	in      []*Schema // that are wanted
	by      *Groups
	summary *Summary
}

// Plan checks the query against the schemas of the rows that come in.
func (q Query) Plan(schemas []*Schema) (*Plan, error) {
	p := &Plan{Query: q, all: schemas, in: slices.Clone(schemas), summary: Summarize(nil)}
	if q.View != "" {
		p.in = slices.DeleteFunc(p.in, func(s *Schema) bool { return s.View != q.View })
	}
	if len(p.in) == 0 {
		return nil, fmt.Errorf("view: there are no rows of kind %q", q.View)
	}
	p.Schemas = slices.Clone(p.in)
	if q.By != nil {
		if len(p.in) > 1 {
			return nil, fmt.Errorf("by: %s has several kinds of rows: choose one with --view", p.in[0].Tool)
		}
		var err error
		if p.by, err = By(nil, q.By, p.in[0]); err != nil {
			return nil, err
		}
		p.Schemas = []*Schema{p.by.Schema()}
	}
	if q.Summary {
		if p.summary = Summarize(p.Schemas); !p.summary.Any() {
			return nil, fmt.Errorf("summary: %s has no histogram to sum up", p.in[0].Tool)
		}
		for i, s := range p.Schemas {
			p.Schemas[i] = p.summary.Schema(s)
		}
	}
	return p, nil
}

// Grouped says whether rows are counted by columns, and come only with outputs.
func (p *Plan) Grouped() bool { return p.by != nil }

// Drop leaves out rows of the schemas that unwanted names. One must be left.
func (p *Plan) Drop(unwanted func(*Schema) bool) error {
	p.Schemas = slices.DeleteFunc(p.Schemas, unwanted)
	if len(p.Schemas) == 0 {
		return errors.New("no kind of rows is left")
	}
	if p.by == nil {
		p.in = nil
		for _, s := range p.Schemas {
			p.in = append(p.in, p.summary.Source(s))
		}
	}
	return nil
}

// A Pipe is the stages of a query.
type Pipe struct {
	// Uses are the columns that the stages read. Those that the sink shows have to be
	// added before Head is called: no other column gets its name.
	Uses map[string]bool

	first  Sink
	count  Count
	groups *Groups
	rate   *Rate
}

// Build makes the stages of a query over rows of these schemas.
func Build(q Query, schemas []*Schema, to Sink) (*Pipe, error) {
	p, err := q.Plan(schemas)
	if err != nil {
		return nil, err
	}
	return p.Build(to)
}

// Build makes the stages, from the sink backwards.
func (p *Plan) Build(to Sink) (*Pipe, error) {
	out := &Pipe{Uses: map[string]bool{}, count: Count{Next: to}}
	use := func(ids ...string) {
		for _, id := range ids {
			out.Uses[id] = true
		}
	}
	next := Limit(&out.count, p.Limit, p.Outputs)
	if p.Sort != "" || p.Top != 0 {
		s, err := Sort(next, p.Sort, p.Ascending, p.Top, p.Schemas...)
		if err != nil {
			return nil, err
		}
		use(p.Sort)
		next = s
	}
	if p.Rate > 0 {
		out.rate = &Rate{Next: next, PerSecond: p.Rate, Every: heldEvery, Notice: p.Held, Now: p.Now}
		next = out.rate
	}
	if p.summary.Any() {
		p.summary.Into(next)
		next = p.summary
	}
	if p.by != nil {
		p.by.Into(next)
		use(p.by.Uses()...)
		next, out.groups = p.by, p.by
	}
	if p.Fold != nil {
		next = Fold(next, p.Fold)
		use(p.Fold...)
	}
	for _, expression := range p.Where {
		w, err := Where(next, expression, p.in)
		if err != nil {
			return nil, err
		}
		use(w.Uses()...)
		next = w
	}
	if len(p.in) < len(p.all) {
		next = Only(next, p.in...)
	}
	out.first = next
	return out, nil
}

// Head is where rows go in. They get their names first.
func (p *Pipe) Head(namers map[string]Namer) Sink { return Name(p.first, p.Uses, namers) }

// Rows is how many rows the sink has taken.
func (p *Pipe) Rows() uint64 { return p.count.Rows }

// Refused is how many rows found no room for one more group.
func (p *Pipe) Refused() uint64 {
	if p.groups == nil {
		return 0
	}
	return p.groups.Refused()
}

// Held is how many rows Rate did not hand on.
func (p *Pipe) Held() uint64 {
	if p.rate == nil {
		return 0
	}
	return p.rate.Held
}
