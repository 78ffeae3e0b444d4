// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
)

// An other is a tool whose recorded rows answer for a tool that was not recorded.
type other struct {
	tool, view, flag string            // rows of this view, recorded with this flag
	was              map[string]string // columns that have another id there
	also             string            // one more column of the other tool, which fill reads
	fill             func(r *row.Row, also *row.Cell)
	lacks            []string // columns that the other tool does not have
}

// others are the tools that another tool can answer for, by name.
var others = map[string]*other{
	"tcplife": {
		tool: "flows", view: "connections", flag: "closed",
		was: map[string]string{"duration_ms": "wall_ms"}, also: "older",
		fill: func(r *row.Row, older *row.Cell) {
			*r.Get("seen_ms") = *r.Get("duration_ms")
			if older.Kind != row.Null {
				*r.Get("duration_ms") = row.Cell{}
			}
		},
		lacks: []string{"unsent_bytes", "established_ms", "retrans", "cong", "state_close", "end", "reset_by", "errno"},
	},
}

// instead finds rows of another tool that answer for r, if r's own were not recorded. It
// returns nil if there are none, and refuses columns that they lack.
func (r *run) instead(all []*record.Contents) (*other, *record.Contents, error) {
	o := others[r.tool.Name]
	if o == nil {
		return nil, nil, nil
	}
	i := slices.IndexFunc(all, func(c *record.Contents) bool {
		return c.Tool == o.tool && c.Config[o.flag] == "true"
	})
	if i < 0 {
		return nil, nil, nil
	}
	if err := o.check(r); err != nil {
		return nil, nil, err
	}
	o.prepare(r.prepared.Schemas[0])
	return o, all[i], nil
}

// check refuses flags that name a column that the rows lack.
func (o *other) check(r *run) error {
	f := r.flags
	asked := map[string][]string{"by": strings.Split(f.by, ","), "sort": strings.Split(f.sort, ",")}
	if f.names {
		return tool.Usagef("--names: %s was not recorded, and %s has no names: 'seine record %s --dir DIR' would have recorded them", r.tool.Name, o.name(), quoted(r.asked()+" --names"))
	}
	for _, id := range strings.Split(f.columns, ",") {
		if !strings.HasPrefix(id, "-") {
			asked["columns"] = append(asked["columns"], strings.TrimPrefix(id, "+"))
		}
	}
	if f.where != "" {
		w, err := row.Where(nil, f.where, r.prepared.Schemas)
		if err != nil {
			return tool.Usagef("--%v", err)
		}
		asked["where"] = w.Uses()
	}
	for _, flag := range sortedKeys(asked) {
		for _, id := range asked[flag] {
			if slices.Contains(o.lacks, id) {
				return tool.Usagef("--%s: %s was not recorded, and %s does not have %s: 'seine record %s --dir DIR' would have recorded it", flag, r.tool.Name, o.name(), id, quoted(r.asked()))
			}
		}
	}
	return nil
}

// name is the other tool as it was recorded.
func (o *other) name() string { return o.tool + " --" + o.flag }

// note says which tool the rows come from.
func (o *other) note(asked string) string {
	return fmt.Sprintf("answered by rows of %s, which lack %s: 'seine record %s --dir DIR' would have recorded these too", o.name(), strings.Join(o.lacks, ", "), quoted(asked))
}

// prepare drops the missing columns from tables and sums: a missing value is not zero.
func (o *other) prepare(s *row.Schema) {
	for i := range s.Columns {
		if slices.Contains(o.lacks, s.Columns[i].ID) {
			s.Columns[i].Sum = false
			s.Show = slices.DeleteFunc(s.Show, func(shown int) bool { return shown == i })
		}
	}
}

// into is the schema to read the other tool's rows with: the tool's own, with the ids of the
// other tool and one more column.
func (o *other) into(mine *row.Schema, s *record.Schema) *row.Schema {
	if s.View != o.view {
		return nil
	}
	out := &row.Schema{Tool: mine.Tool, View: mine.View, Columns: slices.Clone(mine.Columns)}
	for i := range out.Columns {
		if c := &out.Columns[i]; o.was[c.ID] != "" {
			c.Was = []string{o.was[c.ID]}
		}
	}
	out.Columns = append(out.Columns, row.Column{ID: o.also, Kind: row.Bool})
	return out
}

// row converts a row of the other tool.
func (o *other) row(mine *row.Schema, r *row.Row) *row.Row {
	n := len(mine.Columns)
	out := &row.Row{Schema: mine, Cells: r.Cells[:n:n]}
	o.fill(out, &r.Cells[n])
	return out
}
