// SPDX-License-Identifier: Apache-2.0

package row

import "fmt"

// Name replaces raw values by names, in place, for the columns in use: the id of a cgroup by its
// path. A nil use means all columns. Columns are named in order, so a Namer that looks at the
// whole row finds names, not numbers, in earlier columns. Absent values stay absent.
func Name(next Sink, use map[string]bool, namers map[string]Namer) Sink {
	return &naming{next: next, use: use, namers: namers, steps: map[*Schema][]namingStep{}}
}

type naming struct {
	next   Sink
	use    map[string]bool
	namers map[string]Namer
	steps  map[*Schema][]namingStep
}

type namingStep struct {
	column int
	namer  Namer
}

func (n *naming) Row(r *Row) error {
	steps, ok := n.steps[r.Schema]
	if !ok {
		var err error
		if steps, err = n.plan(r.Schema); err != nil {
			return err
		}
		n.steps[r.Schema] = steps
	}
	for _, s := range steps {
		if c := &r.Cells[s.column]; c.Kind != Null {
			s.namer(r, c)
		}
	}
	return n.next.Row(r)
}

func (n *naming) plan(s *Schema) ([]namingStep, error) {
	var steps []namingStep
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.As == "" || n.use != nil && !n.use[c.ID] {
			continue
		}
		namer := n.namers[c.As]
		if namer == nil {
			return nil, fmt.Errorf("%s: column %s: no namer %q", s.Tool, c.ID, c.As)
		}
		steps = append(steps, namingStep{i, namer})
	}
	return steps, nil
}

func (n *naming) End(e End) error { return n.next.End(e) }
