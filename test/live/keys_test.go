// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

// keyless are key columns without a value in a tool's demo, and why.
var keyless = map[string]string{}

// TestKeys runs each counting tool over its demo with all of its keys. Each key has
// a value in some row. Cases check whether the values are right.
func TestKeys(t *testing.T) {
	if lab.Emulated() {
		t.Skip("what is in a key does not depend on the kernel, and this takes minutes where it is emulated")
	}
	for _, tl := range tools.All {
		keys, demo := keysOf(t, tl), tools.Demos[tl.Name]
		if tl.Kind(tl.NewConfig()) == tool.Events || len(keys) == 0 || demo.Run == nil {
			continue
		}
		t.Run(tl.Name, func(t *testing.T) {
			var rows []*row.Row
			_, err := trial.RunCase(t.Context(), tl, trial.Case{Hosts: demo.Hosts, Run: func(x *trial.Trial) (err error) {
				rows, err = x.Rows(func() error { return demo.Run(x.World) }, "--by="+strings.Join(keys, ","))
				return err
			}}, "")
			if errors.Is(err, probe.ErrNotSupported) || errors.Is(err, trial.ErrSkip) || errors.Is(err, lab.ErrNotSupported) {
				t.Skip(err)
			}
			// Packets of the kernel itself have keys that no process of the
			// world has, so errors of the audit do not matter here.
			if len(rows) == 0 {
				t.Fatal("no rows: ", err)
			}
			for _, id := range keys {
				if !slices.ContainsFunc(rows, func(r *row.Row) bool { return hasValue(r, id) }) && keyless[tl.Name+" "+id] == "" {
					t.Errorf("%s has no value in %d rows", id, len(rows))
				}
			}
		})
	}
}

// hasValue reports whether a column is set. A user may be 0.
func hasValue(r *row.Row, id string) bool {
	c := r.Get(id)
	return c != nil && c.Kind != row.Null && (id == "uid" || !slices.Contains([]string{"", "-", "::", "0.0.0.0", "0"}, trial.Value(c)))
}

// keysOf are the key columns of a tool's first view.
func keysOf(t *testing.T, tl *tool.Tool) (ids []string) {
	t.Helper()
	s, err := tl.Views(tl.NewConfig())[0].Output.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Columns {
		if c.Key && !slices.Contains([]string{"container"}, c.ID) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
