// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"seine/internal/row"
)

// ParseColumns reads --columns for a table: `a,b,c` chooses columns in that
// order; `+a,-b` adds to and removes from those that are shown.
func ParseColumns(s *row.Schema, spec string) ([]int, error) {
	return parse(s, s.Show, spec)
}

// Columns returns the columns of s that a format writes, in order. An empty
// spec gives the format's default: what a table shows, all that JSON and CSV
// have. These are the columns that need their names.
func Columns(format string, s *row.Schema, spec string) ([]int, error) {
	base := s.Show
	if format != "table" && format != "book" {
		base = every(s)
	}
	if spec == "" {
		return base, nil
	}
	return parse(s, base, spec)
}

// Choose reads --columns for the views of a tool, for Options.Columns. A column has to be in at
// least one of the views. A view that has none of the chosen columns keeps its own. A view that
// would be left with sums and no key has no columns at all: it is not shown.
func Choose(format string, schemas []*row.Schema, spec string) (map[*row.Schema][]int, error) {
	if spec == "" {
		return nil, nil
	}
	words, relative, err := split(spec)
	if err != nil {
		return nil, err
	}
	for _, w := range words {
		id := strings.TrimLeft(w, "+-")
		if !slices.ContainsFunc(schemas, func(s *row.Schema) bool { return s.Index(id) >= 0 }) {
			return nil, fmt.Errorf("columns: %w", row.Unknown(id, schemas...))
		}
	}
	out := map[*row.Schema][]int{}
	for _, s := range schemas {
		mine := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return s.Index(strings.TrimLeft(w, "+-")) < 0 })
		if len(mine) == 0 {
			continue
		}
		sum := func(id string) bool { return s.Columns[s.Index(id)].Sum }
		if !relative && len(mine) < len(words) && !slices.ContainsFunc(mine, func(id string) bool { return !sum(id) }) {
			out[s] = []int{}
		} else if out[s], err = Columns(format, s, strings.Join(mine, ",")); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// split cuts a spec into words and says of which of the two forms it is.
func split(spec string) (words []string, relative bool, err error) {
	for w := range strings.SplitSeq(spec, ",") {
		w = strings.TrimSpace(w)
		if strings.TrimLeft(w, "+-") == "" {
			return nil, false, fmt.Errorf("columns: %q names no column between two commas", spec)
		}
		if len(w)-len(strings.TrimLeft(w, "+-")) > 1 {
			return nil, false, fmt.Errorf("columns: %q: one sign is enough", w)
		}
		words = append(words, w)
	}
	relative = words[0][0] == '+' || words[0][0] == '-'
	for i, w := range words {
		switch signed := w[0] == '+' || w[0] == '-'; {
		case signed && !relative:
			return nil, false, fmt.Errorf("columns: %q mixes two forms: either a,b,c or +a,-b", spec)
		case relative && !signed: // +a,b adds both
			words[i] = "+" + w
		}
	}
	return words, relative, nil
}

func parse(s *row.Schema, base []int, spec string) ([]int, error) {
	words, relative, err := split(spec)
	if err != nil {
		return nil, err
	}
	var out []int
	if relative {
		out = slices.Clone(base)
	}
	for _, w := range words {
		id := strings.TrimLeft(w, "+-")
		i := s.Index(id)
		if i < 0 {
			return nil, fmt.Errorf("columns: %w", row.Unknown(id, s))
		}
		has := slices.Index(out, i)
		switch {
		case w[0] == '-' && has >= 0:
			out = slices.Delete(out, has, has+1)
		case w[0] == '-' || w[0] == '+' && has >= 0: // so it is already
		case has >= 0:
			return nil, fmt.Errorf("columns: %s twice", id)
		default:
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("columns: none left")
	}
	return out, nil
}

// every is all columns that have values.
func every(s *row.Schema) []int {
	var all []int
	for i := range s.Columns {
		if !s.Columns[i].Idle {
			all = append(all, i)
		}
	}
	return all
}

// HelpColumns writes what --columns help says: the columns of each view with
// unit, kind and meaning; those that a table, or a sentence in place of it, shows
// by default are marked.
func HelpColumns(w io.Writer, schemas ...*row.Schema) error {
	var b []byte
	for n, s := range schemas {
		if n > 0 {
			b = append(b, '\n')
		}
		if s.View != "" {
			b = fmt.Appendf(b, "View %s:\n", s.View)
		}
		id, unit := len("ID"), len("UNIT")
		for i := range s.Columns {
			id = max(id, len(s.Columns[i].ID))
			unit = max(unit, len(unitOf(&s.Columns[i])))
		}
		hist := false
		b = fmt.Appendf(b, "  %-*s  %-*s  %-9s  %s\n", id, "ID", unit, "UNIT", "KIND", "MEANING")
		for i := range s.Columns {
			c := &s.Columns[i]
			mark := " "
			if s.Line == "" && slices.Contains(s.Show, i) || strings.Contains(s.Line, "{"+c.ID+"}") {
				mark = "*"
			}
			hist = hist || c.IsHist()
			b = fmt.Appendf(b, "%s %-*s  %-*s  %-9s  %s", mark, id, c.ID, unit, unitOf(c), kindOf(c), c.Help)
			b = append(trimRight(b), '\n')
		}
		if s.Line == "" {
			b = append(b, "* in the table by default\n"...)
		} else {
			var ids []string
			for _, i := range s.Show {
				ids = append(ids, s.Columns[i].ID)
			}
			b = fmt.Appendf(b, "* in the line by default; +a,-b add to and take from %s\n", strings.Join(ids, ","))
		}
		if hist {
			b = fmt.Appendf(b, "The histogram also has, for --where, --sort and --columns (as with --summary): %s.\n", strings.Join(row.Measures, " "))
		}
	}
	_, err := w.Write(b)
	return err
}

// unitOf reads a column's unit from its id.
func unitOf(c *row.Column) string {
	if c.Unit != "" {
		return c.Unit
	}
	if i := strings.LastIndexByte(c.ID, '_'); i >= 0 {
		switch u := c.ID[i+1:]; u {
		case "ns", "us", "ms", "s", "bytes":
			return u
		}
	}
	if c.ID == "bytes" {
		return "bytes"
	}
	return "-"
}

func kindOf(c *row.Column) string {
	switch {
	case c.IsHist(), c.Inner:
		return "histogram"
	case c.Kind == row.Object:
		return "stack"
	case c.Kind == row.Uint, c.Kind == row.Int:
		return "number"
	case c.Kind == row.Bool:
		return "bool"
	case c.Kind == row.Time:
		return "time"
	case c.Kind == row.Addr:
		return "address"
	}
	return "text"
}
