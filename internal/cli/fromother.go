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
	was              map[string]string // columns whose values have another id there
	also             string            // a further column of the other tool, for fill
	fill             func(r *row.Row, also *row.Cell)
	lacks            []string // columns that the other tool does not tell
}

// others are the tools that can be answered for, by name.
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

// instead finds the rows of another tool that answer for those of r, which were not recorded;
// nil: there are none. A column that they lack cannot be asked for.
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

// check refuses flags that name a column which the rows lack.
func (o *other) check(r *run) error {
	f := r.flags
	asked := map[string][]string{"by": strings.Split(f.by, ","), "sort": strings.Split(f.sort, ",")}
	if f.names {
		return tool.Usagef("--names: %s was not recorded, and %s tells no names: 'seine record %s --dir DIR' would have recorded them", r.tool.Name, o.name(), quoted(r.asked()+" --names"))
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
				return tool.Usagef("--%s: %s was not recorded, and %s does not tell %s: 'seine record %s --dir DIR' would have recorded it", flag, r.tool.Name, o.name(), id, quoted(r.asked()))
			}
		}
	}
	return nil
}

// name is the other tool as it was recorded.
func (o *other) name() string { return o.tool + " --" + o.flag }

// note says what the rows are.
func (o *other) note(asked string) string {
	return fmt.Sprintf("answered by rows of %s, which do not tell %s: 'seine record %s --dir DIR' would have recorded these too", o.name(), strings.Join(o.lacks, ", "), quoted(asked))
}

// prepare leaves the columns that are lacking out of tables and sums: no value is not zero.
func (o *other) prepare(s *row.Schema) {
	for i := range s.Columns {
		if slices.Contains(o.lacks, s.Columns[i].ID) {
			s.Columns[i].Sum = false
			s.Show = slices.DeleteFunc(s.Show, func(shown int) bool { return shown == i })
		}
	}
}

// into is the schema that the other tool's rows are read with: that of the tool, with the
// ids of the other, and one column more.
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

// row makes a row of the tool of what was read.
func (o *other) row(mine *row.Schema, r *row.Row) *row.Row {
	n := len(mine.Columns)
	out := &row.Row{Schema: mine, Cells: r.Cells[:n:n]}
	o.fill(out, &r.Cells[n])
	return out
}
