// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
)

// each runs a check for every tool.
func each(t *testing.T, check func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec)) {
	for _, tl := range All {
		t.Run(tl.Name, func(t *testing.T) {
			spec, err := object.Spec(tl.Name)
			if err != nil {
				t.Fatal(err)
			}
			check(t, tl, spec)
		})
	}
}

// eachView runs a check for every view of every tool.
func eachView(t *testing.T, check func(t *testing.T, tl *tool.Tool, v tool.View, s *row.Schema, of int)) {
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		for _, cfg := range configs(tl) {
			views := tl.Views(cfg)
			schemas, err := tl.Schemas(views)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range schemas {
				check(t, tl, views[i], s, len(schemas))
			}
		}
	})
}

// configs is the default config of a tool and one for each of its switches.
func configs(tl *tool.Tool) []any {
	out := []any{tl.NewConfig()}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(out[0]).Elem()) {
		if f.Type.Kind() == reflect.Bool {
			c := tl.NewConfig()
			reflect.ValueOf(c).Elem().FieldByIndex(f.Index).SetBool(true)
			out = append(out, c)
		}
	}
	return out
}

// TestLayout: the Go structs of every view have the bytes of the C ones.
func TestLayout(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		for _, cfg := range configs(tl) {
			for _, v := range tl.Views(cfg) {
				if err := v.Output.Check(spec); err != nil {
					t.Errorf("view %q with %+v: %v", v.Name, cfg, err)
				}
			}
		}
	})
}

// TestConstants: every bpf tag names a constant of the same size.
func TestConstants(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		if err := tool.Constants(spec, tl.NewConfig()); err != nil {
			t.Error(err)
		}
	})
}

// TestSockets: if a tool refuses a filter, the tool that it recommends exists
// and accepts the filter.
func TestSockets(t *testing.T) {
	byName := map[string]*tool.Tool{}
	for _, tl := range All {
		byName[tl.Name] = tl
	}
	for _, tl := range All {
		has := append(slices.Clone(tl.Sockets.Families), tl.Sockets.Protos...)
		for what, name := range tl.Sockets.Else {
			other := byName[name]
			switch {
			case slices.Contains(has, what):
				t.Errorf("%s has rows of %s itself, but names %s for them", tl.Name, what, name)
			case other == nil:
				t.Errorf("%s names %s for %s: there is no such tool", tl.Name, name, what)
			case other.Filters&tool.FilterProto == 0 || what == "unix" && other.Sockets.Families != nil ||
				what != "unix" && other.Sockets.Protos != nil && !slices.Contains(other.Sockets.Protos, what):
				t.Errorf("%s names %s for %s, which has none either", tl.Name, name, what)
			}
		}
	}
}

// TestPoints: each point has a program, and each program a point. TestOwnersPoints tells which of
// the programs of owner.h a tool has.
func TestPoints(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		used := map[string]bool{}
		for _, cfg := range configs(tl) {
			for _, p := range tl.EveryPoint(spec, cfg) {
				n := 0
				for _, w := range p.WaysIn(spec) {
					for _, name := range w.Programs {
						used[name] = true
						n++
					}
				}
				if n == 0 {
					t.Errorf("point %s has no program", p.Name)
				}
				if p.Optional && p.Misses == "" {
					t.Errorf("point %s is optional, but does not say what is missed without it", p.Name)
				}
			}
		}
		for name := range spec.Programs {
			if !used[name] && !strings.HasPrefix(name, "owner_") {
				t.Errorf("program %s belongs to no point", name)
			}
		}
	})
}

// TestUses: only maps that the loaded programs use get memory.
func TestUses(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		if tl.Name != "tcpconnect" {
			return
		}
		for _, cfg := range configs(tl) {
			dns := reflect.ValueOf(cfg).Elem().FieldByName("DNS").Bool()
			uses := probe.Uses(spec, tl.EveryPoint(spec, cfg))
			for name, want := range map[string]bool{"dns_streams": dns, "pendings": true, "events": true, "filter_pids": true} {
				if uses[name] != want {
					t.Errorf("dns %v: uses %s: %v", dns, name, uses[name])
				}
			}
		}
	})
}

// TestColumns: every view has a valid table, and every column says what it is.
func TestColumns(t *testing.T) {
	eachView(t, func(t *testing.T, _ *tool.Tool, v tool.View, s *row.Schema, of int) {
		if of > 1 && s.View == "" {
			t.Errorf("a view has no name, and there are %d", of)
		}
		if len(s.Show) == 0 && s.Line == "" {
			t.Errorf("view %q shows nothing", s.View)
		}
		for _, c := range s.Columns {
			if c.Help == "" {
				t.Errorf("column %s has no help", c.ID)
			}
			if c.ID != strings.ToLower(c.ID) || strings.ContainsAny(c.ID, " -") {
				t.Errorf("column %q is not spelled like one", c.ID)
			}
		}
		if v.Sort != "" && s.Index(v.Sort) < 0 {
			t.Errorf("view %q is sorted by %s, which is no column", v.Name, v.Sort)
		}
	})
}

// TestSays: every view has a sentence for its rows, for seine with. The sentence
// of a histogram has its summary numbers.
func TestSays(t *testing.T) {
	eachView(t, func(t *testing.T, _ *tool.Tool, v tool.View, s *row.Schema, _ int) {
		if v.Says == "" {
			t.Errorf("view %q has no sentence: declare Says", v.Name)
			return
		}
		if s.HasHist() {
			s = row.Summarize([]*row.Schema{s}).Schema(s)
		}
		if _, err := sink.NewTimeline(nil).Add(s, v.Says, nil); err != nil {
			t.Errorf("view %q: %v", v.Name, err)
		}
	})
}

// TestGroupedHeads: the head of a column that rows are grouped by names that
// column and no other, in upper or lower case like the tool's other heads.
func TestGroupedHeads(t *testing.T) {
	small := func(head string) bool { return head == strings.ToLower(head) && head != strings.ToUpper(head) }
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		schemas, err := tl.Schemas(tl.Views(tl.NewConfig()))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range schemas {
			for _, c := range s.Columns {
				if c.Kind == row.Object || c.Kind == row.Time {
					continue
				}
				g, err := row.By(nil, []string{c.ID}, s)
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				out, err := sink.New("table", &b, sink.Options{Schemas: []*row.Schema{g.Schema()}})
				if err != nil {
					t.Fatal(err)
				}
				out.End(row.End{Last: true})
				heads := strings.Fields(b.String())
				if len(heads) < 2 || strings.ContainsAny(heads[0], ":<>") || heads[0][0] == '(' || small(heads[0]) != small(heads[1]) {
					t.Errorf("--by %s has the head %q", c.ID, b.String())
				}
			}
		}
	})
}

// TestColumnHelp: columns made of one field have separate help.
func TestColumnHelp(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		for _, cfg := range configs(tl) {
			for _, v := range tl.Views(cfg) {
				s, err := v.Output.Schema()
				if err != nil {
					t.Fatal(err)
				}
				for i := 1; i < len(s.Columns); i++ {
					if a, b := s.Columns[i-1], s.Columns[i]; a.Help == b.Help {
						t.Errorf("view %q: %s and %s are both %q", v.Name, a.ID, b.ID, a.Help)
					}
				}
			}
		}
	})
}

// TestResults: all tools that show the result of a connect use the same words.
func TestResults(t *testing.T) {
	as := map[string][]string{}
	for _, tl := range All {
		if tl.Name != "soconnect" && tl.Name != "tcpconnect" {
			continue
		}
		s, err := tl.Views(tl.NewConfig())[0].Output.Schema()
		if err != nil {
			t.Fatal(err)
		}
		words := s.Columns[s.Index("result")].As
		as[words] = append(as[words], tl.Name)
	}
	if len(as) != 1 {
		t.Errorf("results are named by %v, want one way", as)
	}
}

// TestFlags: every flag of a tool has help. The help does not repeat the
// default, which the command line adds.
func TestFlags(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		for _, f := range tool.Settings(tl.NewConfig()) {
			if f.Help == "" {
				t.Errorf("flag --%s has no help", f.Name)
			}
			if def := fmt.Sprint(reflect.ValueOf(f.Value).Elem()); def != "" && strings.Contains(f.Help, "("+def+")") {
				t.Errorf("flag --%s: %q says its default twice", f.Name, f.Help)
			}
		}
	})
}

// sections are the sections that every README must have.
var sections = []string{"Examples", "Sample output", "How it works", "Cost", "What it misses"}

// TestDeclared: tools have the names of their folders, and READMEs have all
// sections.
func TestDeclared(t *testing.T) {
	names := map[string]bool{}
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		if _, err := os.Stat(filepath.Join(tl.Name, tl.Name+".bpf.c")); err != nil {
			t.Errorf("tool %s is not in a folder of its name: %v", tl.Name, err)
		}
		for _, n := range append([]string{tl.Name}, aliases(tl)...) {
			if names[n] {
				t.Errorf("the name %s is taken twice", n)
			}
			names[n] = true
		}
		if !slices.Contains(tool.Layers, tl.Layer) {
			t.Errorf("layer %q is not one", tl.Layer)
		}
		if tl.Short == "" || tl.Banner == "" {
			t.Error("no short description or no banner")
		}
		if Demos[tl.Name].Run == nil && Demos[tl.Name].Why == "" {
			t.Error("no demo, and no reason why not")
		}
		if len(Selftests[tl.Name]) == 0 {
			t.Error("no case for the self-test")
		}
		for _, s := range sections {
			_, text, ok := strings.Cut(tl.Doc, "\n## "+s+"\n")
			if !ok || len(strings.TrimSpace(text)) < 40 {
				t.Errorf("README.md has no section %q worth the name", s)
			}
		}
	})
}

func aliases(tl *tool.Tool) (out []string) {
	for _, a := range tl.Aliases {
		out = append(out, a.Name)
	}
	return out
}

// TestOrder: the registry is sorted, so that a diff shows one line per tool.
func TestOrder(t *testing.T) {
	var names []string
	for _, tl := range All {
		names = append(names, tl.Name)
	}
	if !slices.IsSorted(names) {
		t.Error(fmt.Sprint("not in order: ", names))
	}
}
