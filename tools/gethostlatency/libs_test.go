// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/tool"
)

// TestLib: valid and invalid values of --lib.
func TestLib(t *testing.T) {
	l := newLibraries("/a/b.so:f,/c:d/e,/x")
	if got, want := fmt.Sprint(l.asked), "[{/a/b.so f} {/c:d/e } {/x }]"; got != want {
		t.Errorf("--lib reads %s, want %s", got, want)
	}
	for _, bad := range []string{"/no/such/file", "/proc/self/maps", "/proc/self/exe:no_such_function"} {
		if err := newLibraries(bad).check(); !errors.Is(err, tool.ErrUsage) {
			t.Errorf("--lib %s: %v", bad, err)
		}
	}
	if err := newLibraries("").check(); err != nil {
		t.Errorf("without --lib: %v", err)
	}
}

// TestMaps: a mapped C library is found, whatever the name of its directory.
func TestMaps(t *testing.T) {
	name := filepath.Join(t.TempDir(), "with blanks", "libc.so.6")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, self, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(code)
	l := newLibraries("")
	l.begin()
	defer l.end()
	l.inMaps(os.Getpid())
	if l.files[idOf(int(f.Fd()))] == nil {
		t.Errorf("%s is mapped and not found", name)
	}
}

// TestFIFO: a FIFO in the place of a C library does not block the search.
func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "lib64"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "lib64/libc.so.6"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := newLibraries("")
	l.begin()
	done := make(chan bool)
	go func() { l.inDir(dir); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it is waited for")
	}
	defer l.end()
	if len(l.files) != 0 {
		t.Errorf("%d files opened, want 0", len(l.files))
	}
}

// FuzzFunctions: no file makes it panic.
func FuzzFunctions(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(self[:4096])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, file []byte) { functions(bytes.NewReader(file), true) })
}
