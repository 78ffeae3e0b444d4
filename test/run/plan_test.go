// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlanNames: the tests that the plan names exist. An outdated name would
// select nothing.
func TestPlanNames(t *testing.T) {
	live, language := testsIn(t, "../live"), testsIn(t, "../../internal/bt")
	want := func(in map[string]bool, names ...string) {
		for _, name := range names {
			if !in[name] {
				t.Errorf("there is no Test%s", name)
			}
		}
	}
	want(language, wordsOf(asksNothing)...)
	for _, g := range guests {
		want(live, g.skip...)
		want(live, wordsOf(g.run)...)
		want(language, wordsOf(g.language)...)
	}
	text, err := os.ReadFile("../why/why_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wordsOf(strings.TrimPrefix(toldFaults, "^TestPairs$/")) {
		one, other, _ := strings.Cut(strings.ReplaceAll(name, "_", " "), ", ")
		if !strings.Contains(string(text), fmt.Sprintf("{%q, %q}", one, other)) {
			t.Errorf("there is no pair %s", name)
		}
	}
}

// wordsOf is the names of tests in an expression.
func wordsOf(expression string) (names []string) {
	for name := range strings.FieldsFuncSeq(expression, func(r rune) bool { return strings.ContainsRune("^$|()", r) }) {
		if name != "Test" && name != "Fuzz" {
			names = append(names, strings.TrimPrefix(name, "Test"))
		}
	}
	return names
}

var testFunc = regexp.MustCompile(`(?m)^func Test(\w+)\(t \*testing\.T\)`)

// testsIn is the tests of a folder, without their first word.
func testsIn(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
	}
	return names
}
