// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/test/golden"
)

// TestGolden renders testdata/rows.jsonl of every tool through every format
// that it writes. UPDATE=1 rewrites the golden files.
func TestGolden(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		cfg := tl.NewConfig()
		views := tl.Views(cfg)
		schemas, err := tl.Schemas(views)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := golden.Rows(".", tl.Name, schemas)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range append([]string{"table", "json", "csv"}, tl.Formats...) {
			for _, s := range schemas {
				if format == "folded" && !slices.ContainsFunc(s.Columns, isStack) {
					continue // a tool whose other views have stacks
				}
				name := format
				if s.View != "" {
					name = s.View + "-" + format
				}
				t.Run(name, func(t *testing.T) { compare(t, tl, views[0], s, rows, format, name) })
			}
		}
	})
}

func isStack(c row.Column) bool { return strings.HasSuffix(c.ID, "stack") }

func compare(t *testing.T, tl *tool.Tool, v tool.View, s *row.Schema, rows []*row.Row, format, name string) {
	var out bytes.Buffer
	o := sink.Options{
		Schemas: []*row.Schema{s}, Time: v.Time, Start: time.Date(2026, 11, 14, 23, 36, 0, 0, time.UTC),
		Interval: tl.Kind(tl.NewConfig()) != tool.Events, Zone: time.UTC, Book: v.Book,
	}
	if g := tl.Graph; g != nil {
		o.Graph = sink.Graph{From: g.From, To: g.To, Sum: g.Sum, Noun: g.Unit}
	}
	if tl.Plot != nil {
		o.Plot = sink.Plot(tl.Plot(tl.NewConfig()))
	}
	to, err := sink.New(format, &out, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Schema == s {
			if err := to.Row(r.Clone()); err != nil { // -o book empties some cells
				t.Fatal(err)
			}
		}
	}
	end := row.End{Time: time.Date(2026, 11, 14, 23, 37, 0, 0, time.UTC), Output: true, Last: true}
	if err := to.End(end); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tl.Name, "testdata", name+".golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, out.Bytes(), want)
	}
}
