// SPDX-License-Identifier: Apache-2.0

// Package test holds what is true of the tree as a whole.
package test

import (
	"os/exec"
	"strings"
	"testing"
)

// allowed says which of our packages a package may import: imports go one way.
var allowed = map[string][]string{
	"internal/row":    {},
	"internal/object": {},
	"internal/host":   {},
	"internal/draw":   {},
	"internal/sym":    {},
	"internal/lab":    {"internal/host"},
	"internal/kern":   {"internal/row"},
	"internal/kbtf":   {},
	"internal/probe":  {"internal/host", "internal/kbtf"},
	"internal/enrich": {"internal/host"},
	"internal/sink":   {"internal/row", "internal/kern", "internal/draw"},
	"internal/tool":   {"internal/row", "internal/kern", "internal/probe", "internal/object", "internal/lab", "internal/host"},
	"tools/":          {"internal/row", "internal/kern", "internal/probe", "internal/tool", "internal/lab", "internal/host"},
}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		words := strings.Fields(line)
		pkg := strings.TrimPrefix(words[0], "seine/")
		may, ok := allowed[pkg]
		if strings.HasPrefix(pkg, "tools/") {
			may, ok = allowed["tools/"], true
		}
		if !ok {
			continue
		}
		checked++
		for _, imp := range words[1:] {
			ours, is := strings.CutPrefix(imp, "seine/")
			if !is {
				continue
			}
			fine := false
			for _, m := range may {
				fine = fine || m == ours
			}
			if !fine {
				t.Errorf("%s imports %s, which it must not: see docs/ARCHITECTURE.md", pkg, ours)
			}
		}
	}
	if checked < 12 {
		t.Errorf("%d packages were checked, want 12 or more", checked)
	}
}
