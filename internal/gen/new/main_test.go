// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTemplate: what a new tool is made of is formatted as gofmt has it, and
// compiles where it is to stand.
func TestTemplate(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("tools", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"zznew"}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("tools/zznew/*.*")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(f) == ".go" {
			if good, err := format.Source(text); err != nil || !bytes.Equal(good, text) {
				t.Errorf("%s is not as gofmt writes it (%v)", f, err)
			}
		}
		here, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(root, f)] = here
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("overlay", b, 0o644); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("overlay")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", here, "./tools/zznew")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
