// SPDX-License-Identifier: Apache-2.0

package row

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sort orders the rows of each output by a column and cuts them to the first
// top ones (0: all). Numbers, times and histograms (by their count) come
// greatest first, text and addresses in alphabetic order, unless asc is set:
// then all ascend. Absent values come last either way. The column may be one of
// Measures where rows have a histogram. Pending rows come before all others.
//
// With no column rows pass straight through, the first top of each output. With
// one they wait for End{Output} or End{Last}. Rows of different views stay
// together, each view cut by itself.
func Sort(next Sink, column string, asc bool, top int, schemas ...*Schema) (Sink, error) {
	if top < 0 {
		return nil, errors.New("top: the number of rows cannot be negative")
	}
	if column == "" {
		return &cut{next: next, top: top, seen: map[*Schema]int{}}, nil
	}
	s := &sorter{next: next, column: column, asc: asc, top: top}
	if len(schemas) > 0 && !slices.ContainsFunc(schemas, func(x *Schema) bool { i, _ := s.find(x); return i >= 0 }) {
		return nil, fmt.Errorf("sort: %w", Unknown(column, schemas...))
	}
	return s, nil
}

// cut lets the first rows of each output through.
type cut struct {
	next Sink
	top  int
	seen map[*Schema]int
}

func (c *cut) Row(r *Row) error {
	if c.top > 0 {
		if c.seen[r.Schema] >= c.top {
			return nil
		}
		c.seen[r.Schema]++
	}
	return c.next.Row(r)
}

func (c *cut) End(e End) error {
	if e.Output {
		clear(c.seen)
	}
	return c.next.End(e)
}

type sorter struct {
	next   Sink
	column string
	asc    bool
	top    int
	views  []sortView
}

// sortView is the rows of one view that wait for the end of the output.
type sortView struct {
	schema *Schema
	rows   []sortRow
}

type sortRow struct {
	row *Row
	key Cell
}

// find returns the column to sort by, and its measure if that is what is meant.
func (s *sorter) find(x *Schema) (column int, measure bool) {
	if i := x.Index(s.column); i >= 0 {
		return i, false
	}
	if slices.Contains(Measures, s.column) {
		return x.hist(), true
	}
	return -1, false
}

func (s *sorter) Row(r *Row) error {
	i := slices.IndexFunc(s.views, func(v sortView) bool { return v.schema == r.Schema })
	if i < 0 {
		i = len(s.views)
		s.views = append(s.views, sortView{schema: r.Schema})
	}
	kept := sortRow{row: r.Clone()}
	if c, isMeasure := s.find(r.Schema); c >= 0 {
		kept.key = kept.row.Cells[c]
		if isMeasure || kept.key.Kind == Object {
			kept.key = measureKey(&kept.key, s.column)
		}
	}
	s.views[i].rows = append(s.views[i].rows, kept)
	return nil
}

// measureKey is a cell that sorts as the object's measure does, or its count.
func measureKey(c *Cell, id string) Cell {
	if !slices.Contains(Measures, id) {
		id = "count"
	}
	v, ok := measure(c, id)
	if !ok {
		return Cell{}
	}
	return Cell{Kind: Uint, N: math.Float64bits(v)} // not negative: the bits sort as the numbers do
}

func (s *sorter) End(e End) error {
	if !e.Output && !e.Last {
		return s.next.End(e)
	}
	views := s.views
	s.views = nil
	for _, v := range views {
		slices.SortStableFunc(v.rows, func(a, b sortRow) int {
			if p := a.row.Pending(); p != b.row.Pending() { // what hangs now comes first
				if p {
					return -1
				}
				return 1
			}
			return order(&a.key, &b.key, s.asc)
		})
		if s.top > 0 && len(v.rows) > s.top {
			v.rows = v.rows[:s.top]
		}
		for _, r := range v.rows {
			if err := s.next.Row(r.row); err != nil {
				return err
			}
		}
	}
	return s.next.End(e)
}

// order compares two cells. Numbers go before text where a column mixes them.
func order(a, b *Cell, asc bool) int {
	ra, rb := rank(a), rank(b)
	if ra != rb || ra == rankNull {
		return cmp.Compare(ra, rb)
	}
	var c int
	switch ra {
	case rankText:
		return strings.Compare(a.S, b.S)
	case rankAddr:
		return a.IP().Compare(b.IP())
	default:
		c = number(a, b)
	}
	if !asc {
		c = -c
	}
	return c
}

const (
	rankNumber = iota
	rankTime
	rankText
	rankAddr
	rankNull // last, whatever the direction
)

func rank(c *Cell) int {
	switch c.Kind {
	case Uint, Int, Bool:
		return rankNumber
	case Time:
		return rankTime
	case Text:
		return rankText
	case Addr:
		return rankAddr
	}
	return rankNull
}

func number(a, b *Cell) int {
	na, nb := a.Kind == Int && int64(a.N) < 0, b.Kind == Int && int64(b.N) < 0
	if na != nb {
		if na {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.N, b.N) // both negative: two's complement keeps the order
}
