// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	RegisterForTests()
	Main()
	os.Exit(m.Run())
}

// newWorld makes a world for one test.
func newWorld(t *testing.T, hosts ...string) *World {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	w, err := NewWorld(Options{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// counters reads a host's counters, or ends the test.
func counters(t *testing.T, w *World, host string) Counters {
	t.Helper()
	c, err := w.Counters(host)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// many is a count that is cut down on an emulated machine.
func many(n int) int {
	if Emulated() {
		return min(n, 503)
	}
	return n
}

// check compares one number.
func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
