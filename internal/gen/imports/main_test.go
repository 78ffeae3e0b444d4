// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStale: the picture in the documents is what the imports are now.
func TestStale(t *testing.T) {
	root := "../../.."
	want, err := draw(root)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join(root, picture))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is stale: run go run ./internal/gen/imports", picture)
	}
}

// TestReduce: a line leads to the nearest package alone, and each package is above
// those that it imports.
func TestReduce(t *testing.T) {
	nodes := parse("seine/a\tPackage a begins: here.\tseine/b seine/c fmt\nseine/b\tPackage b.\tseine/c\nseine/c\tPackage c.\t\nseine/tools/x\t\tseine/c\nseine/tools/y\t\tseine/b seine/tools/x\n")
	reduce(nodes)
	for name, want := range map[string]struct {
		level   int
		imports []string
	}{"a": {2, []string{"b"}}, "b": {1, []string{"c"}}, "c": {0, nil}, allTools: {2, []string{"b"}}} {
		var got []string
		for imp := range nodes[name].imports {
			got = append(got, imp)
		}
		if nodes[name].level != want.level || !slices.Equal(got, want.imports) {
			t.Errorf("%s: level %d, imports %v, want %d, %v", name, nodes[name].level, got, want.level, want.imports)
		}
	}
	if got := nodes["a"].doc; got != "begins" {
		t.Errorf("a is for %q, want begins", got)
	}
}
