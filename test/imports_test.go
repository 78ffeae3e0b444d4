// SPDX-License-Identifier: Apache-2.0

// Package test has the tests of the tree as a whole.
package test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed says which of our packages a package may import: imports go one way.
// Generators and tests may import everything.
var allowed = map[string][]string{
	"cmd/seine":            {"internal/cli", "internal/lab"},
	"internal/row":         {},
	"internal/object":      {},
	"internal/host":        {},
	"internal/ringbuf":     {},
	"internal/draw":        {},
	"internal/sym":         {},
	"internal/lab":         {"internal/host"},
	"internal/kern":        {"internal/row"},
	"internal/row/rowtest": {"internal/kern", "internal/row"}, // only tests import it
	"internal/kbtf":        {},
	"internal/probe":       {"internal/host", "internal/kbtf"},
	"internal/words":       {},
	"internal/pcapng":      {},
	"internal/enrich":      {"internal/host", "internal/kern", "internal/row", "internal/sym", "internal/words"},
	"internal/sink":        {"internal/row", "internal/kern", "internal/draw", "internal/pcapng"},
	"internal/bt":          {"internal/host", "internal/kern", "internal/probe", "internal/ringbuf", "internal/row", "internal/sym"},
	"internal/tool":        {"internal/row", "internal/kern", "internal/probe", "internal/object", "internal/host", "internal/ringbuf", "internal/words"},
	"internal/family":      {"internal/row", "internal/kern", "internal/probe", "internal/tool"},
	"internal/trial":       {"internal/row", "internal/kern", "internal/probe", "internal/lab", "internal/host", "internal/tool"},
	"internal/cli": {"internal/bt", "internal/enrich", "internal/host", "internal/kern", "internal/lab", "internal/object", "internal/probe",
		"internal/row", "internal/sink", "internal/sym", "internal/tool", "internal/trial", "internal/words", "internal/journal", "internal/names", "internal/record",
		"internal/watch", "internal/why", "internal/top", "internal/agent", "internal/front", "tools", "tools/"},

	"internal/journal": {},
	"internal/names":   {"internal/object", "internal/probe", "internal/ringbuf", "internal/row"},
	"internal/record":  {"internal/journal", "internal/kern", "internal/row"},

	"internal/watch": {"internal/host", "internal/kern", "internal/row"},
	"internal/why":   {"internal/kern", "internal/watch", "internal/words"},
	"internal/top":   {"internal/row", "internal/watch", "internal/why", "internal/words"},
	"internal/agent": {"internal/kern", "internal/row", "internal/watch", "internal/why"},
	"internal/front": {"internal/agent"},

	"tools": {"internal/tool", "internal/trial", "tools/"},
	"tools/": {"internal/row", "internal/kern", "internal/probe", "internal/tool", "internal/family", "internal/lab", "internal/trial", "internal/host",
		"internal/names", "internal/words"},
	"internal/gen":  nil,
	"internal/gen/": nil,
	"test":          nil,
	"test/":         nil,
}

// confined are third-party packages that only some of ours may import: the engine
// has no command line, and only the screen uses a terminal.
var confined = map[string][]string{
	"github.com/spf13/":         {"internal/cli", "internal/gen/", "test/"},
	"charm.land/":               {"internal/top"},
	"github.com/charmbracelet/": {"internal/top"},
}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range against(string(out)) {
		t.Error(wrong)
	}
}

// against lists differences between go list and the table: imports that the table
// does not allow, packages that it does not name, and names without a package.
func against(list string) (wrong []string) {
	used := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], "seine/")
		name := rule(pkg)
		if name == "" {
			wrong = append(wrong, fmt.Sprintf("nothing is said about what %s may import", pkg))
			continue
		}
		used[name] = true
		for _, word := range words[1:] {
			for mod, users := range confined {
				if covers(mod, word) && !slices.ContainsFunc(users, func(m string) bool { return covers(m, pkg) }) {
					wrong = append(wrong, fmt.Sprintf("%s imports %s, which is for %v alone", pkg, word, users))
				}
			}
			imp, ours := strings.CutPrefix(word, "seine/")
			if ours && allowed[name] != nil && !slices.ContainsFunc(allowed[name], func(m string) bool { return covers(m, imp) }) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which it must not: see docs/ARCHITECTURE.md", pkg, imp))
			}
		}
	}
	for name := range allowed {
		if !used[name] {
			wrong = append(wrong, fmt.Sprintf("there is no package %s", name))
		}
	}
	return wrong
}

// rule is the name in the table that is about a package.
func rule(pkg string) string {
	if _, ok := allowed[pkg]; ok {
		return pkg
	}
	for name := range allowed {
		if strings.HasSuffix(name, "/") && covers(name, pkg) {
			return name
		}
	}
	return ""
}

// covers reports whether a name stands for a package. A name that ends in a slash
// stands for all packages below.
func covers(name, pkg string) bool {
	return name == pkg || strings.HasSuffix(name, "/") && strings.HasPrefix(pkg, name)
}

func TestAgainst(t *testing.T) {
	fine := ""
	for name := range allowed {
		if strings.HasSuffix(name, "/") {
			name += "x"
		}
		fine += "seine/" + name + " fmt\n"
	}
	for _, c := range []struct {
		more string
		want int
	}{
		{"", 0},
		{"seine/internal/bt seine/internal/row", 0},
		{"seine/internal/bt seine/internal/cli", 1},
		{"seine/internal/cli seine/test/vm", 1},
		{"seine/internal/tool seine/internal/lab", 1},
		{"seine/internal/tool github.com/spf13/pflag", 1},
		{"seine/internal/cli github.com/spf13/pflag", 0},
		{"seine/internal/row seine/internal/host seine/internal/sym", 2},
		{"seine/tools/tcplife seine/tools/tcptop", 1},
		{"seine/internal/unheard fmt", 1},
		{"seine/test/run seine/internal/cli", 0},
	} {
		if got := against(fine + c.more); len(got) != c.want {
			t.Errorf("%q: %v, want %d", c.more, got, c.want)
		}
	}
	if got := against("seine/internal/row fmt"); len(got) != len(allowed)-1 {
		t.Errorf("%d names without a package, want %d", len(got), len(allowed)-1)
	}
}
