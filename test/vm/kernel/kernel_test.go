// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCached(t *testing.T) {
	user := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", user)
	dir := filepath.Join(user, "seine", "kernels")

	if _, err := Cached("6.1"); !errors.Is(err, ErrNotCached) {
		t.Errorf("empty cache: got %v, want ErrNotCached", err)
	}
	if _, err := Cached("6.2"); err == nil || errors.Is(err, ErrNotCached) {
		t.Errorf("a name outside the matrix: got %v, want another error", err)
	}
	// Another name's kernel and a fetch that is under way are not ours.
	now := time.Now()
	fetched(t, filepath.Join(dir, "6.12-6.12.9-amd64"), now)
	fetched(t, filepath.Join(dir, "6.1-arm64-6.1.0-9-arm64"), now)
	fetched(t, filepath.Join(dir, ".fetch-6.1-1"), now)
	if k, err := Cached("6.1"); !errors.Is(err, ErrNotCached) {
		t.Errorf("got %v, %v, want ErrNotCached", k, err)
	}
	fetched(t, filepath.Join(dir, "6.1-6.1.0-9-amd64"), now.Add(-time.Hour))
	fetched(t, filepath.Join(dir, "6.1-6.1.0-10-amd64"), now)
	fetched(t, filepath.Join(dir, "6.1-6.1.0-8-amd64"), now.Add(-2*time.Hour))
	k, err := Cached("6.1")
	if err != nil || k.Name != "6.1" || k.Version != "6.1.0-10-amd64" {
		t.Errorf("got %v, %v, want the one fetched last, 6.1.0-10-amd64", k, err)
	}
	if want := filepath.Join(dir, "6.1-6.1.0-10-amd64", "vmlinux.btf"); k.BTF != want {
		t.Errorf("BTF is %s, want %s", k.BTF, want)
	}
}

func fetched(t *testing.T, dir string, when time.Time) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chtimes(dir, when, when)); err != nil {
		t.Fatal(err)
	}
}
