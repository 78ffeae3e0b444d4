// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestState: a run continues where it was stopped. In a changed tree only kills and
// explained survivors of unchanged files count, and only with -keep.
func TestState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.h")
	if err := os.WriteFile(file, []byte("a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dead := verdict{mutant: mutant{File: file, Old: "a", New: "b"}, Ended: killed}
	alive := verdict{mutant: mutant{File: file, Old: "a", New: "c"}, Ended: survived}
	kept := filepath.Join(t.TempDir(), "state")
	open := func(inputs string) *state {
		t.Helper()
		s, err := openState(kept, inputs)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		return s
	}
	s := open("one")
	for _, v := range []verdict{dead, alive} {
		if err := s.add(v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.file.WriteString(`{"file":"cut sho`); err != nil {
		t.Fatal(err)
	}
	want := func(when string, s *state, wantDead, wantAlive bool) {
		t.Helper()
		_, d := s.find(dead.mutant, false)
		_, a := s.find(alive.mutant, false)
		_, e := s.find(alive.mutant, true)
		if d != wantDead || a != wantAlive || e != wantDead {
			t.Errorf("%s: the killed mutant is found %v, the survivor %v, explained %v; want %v, %v, %v", when, d, a, e, wantDead, wantAlive, wantDead)
		}
	}
	want("the same tree", open("one"), true, true)
	want("a changed tree", open("two"), false, false)
	*keep = true
	defer func() { *keep = false }()
	want("a changed tree, -keep", open("two"), true, false)
	if err := os.WriteFile(file, []byte("a\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("a changed file, -keep", open("two"), false, false)
}

func TestParseExplained(t *testing.T) {
	got, err := parseExplained("# a comment\n\nbpf/x.h #1\n- \tif (a < b)\n+ \tif (a <= b)\nThey are never\nequal.\n")
	if err != nil {
		t.Fatal(err)
	}
	key := mutant{File: "bpf/x.h", Old: "\tif (a < b)", New: "\tif (a <= b)", Nth: 1}.key()
	if len(got) != 1 || got[key] != "They are never equal." {
		t.Errorf("got %q, want a reason for %q", got, key)
	}
	if _, err := parseExplained("bpf/x.h\n- a\n+ b\n"); err == nil {
		t.Error("a survivor without a reason")
	}
}

// TestShuffle: a change of a file does not change the order of other files'
// mutants.
func TestShuffle(t *testing.T) {
	order := func(texts ...string) (out []string) {
		var list []mutant
		for i, text := range texts {
			list = append(list, mutants(string(rune('a'+i))+".h", text)...)
		}
		shuffle(list, 7)
		for _, m := range list {
			if strings.HasPrefix(m.File, "a") {
				out = append(out, m.key())
			}
		}
		return out
	}
	const text = "\tx(1, 2);\n\ty(3);\n\tif (a < b)\n\ty(3);\n"
	before := order(text, "\tz(1);\n")
	if after := order("\n\n"+text, "\tz(2);\n\tz(4);\n"); !slices.Equal(before, after) {
		t.Errorf("got %q, then %q", before, after)
	}
	slices.Sort(before)
	if n := len(before); n != len(slices.Compact(before)) {
		t.Errorf("two of the %d mutants have one key: %q", n, before)
	}
}

func TestLeaf(t *testing.T) {
	const out = "--- PASS: TestX/a/b (0.1s)\n--- FAIL: TestX/a/c.d (0.2s)\n    --- FAIL: TestX/a (0.3s)\n--- FAIL: TestX (0.3s)\nFAIL\n"
	if got := leaf(out); got != "TestX/a/c.d" {
		t.Errorf("got %q", got)
	}
	if got, want := exactly("TestX/a/c.d"), `^TestX$/^a$/^c\.d$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := leaf("panic: test timed out"); got != "" {
		t.Errorf("got %q of a run that ended otherwise", got)
	}
}
