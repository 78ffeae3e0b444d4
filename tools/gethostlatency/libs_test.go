// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"seine/internal/tool"
)

// TestLib: what --lib may hold, and what it may not.
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

// FuzzFunctions: no file breaks it.
func FuzzFunctions(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(self[:4096])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, file []byte) { functions(bytes.NewReader(file), true) })
}
