// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// A payload lands on top of what the root has, through its symbolic links.
func TestCopyTree(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("a longer old text"), 0o644); err != nil {
		t.Fatal(err)
	}
	payload := fstest.MapFS{
		"bin/tool":  {Data: []byte("tool"), Mode: 0o755},
		"etc/hosts": {Data: []byte("new"), Mode: 0o644},
		"vm/sub/f":  {Data: []byte("f"), Mode: 0o600},
	}
	if err := copyTree(payload, root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		text string
		perm os.FileMode
	}{"usr/bin/tool": {"tool", 0o755}, "etc/hosts": {"new", 0o644}, "vm/sub/f": {"f", 0o600}} {
		file := filepath.Join(root, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		info, err := os.Stat(file)
		if err != nil || string(text) != want.text || info.Mode().Perm() != want.perm {
			t.Errorf("%s: got %q %v (%v), want %q %v", name, text, info.Mode(), err, want.text, want.perm)
		}
	}
}
