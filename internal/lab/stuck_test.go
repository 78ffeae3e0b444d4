// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStuck: the error of a child that reports nothing says in which call it waits.
func TestStuck(t *testing.T) {
	w, err := NewWorld(Options{Timeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h, err := StartHangs(w, "", "stuck", Hang{Network: TCP4})
	if err != nil {
		t.Fatal(err)
	}
	defer h.End()
	if _, err := h.Begin(); err != nil {
		t.Fatal(err)
	}
	err = h.Expect(new(bool))
	if !errors.Is(err, ErrLate) {
		t.Fatalf("%v, want %v", err, ErrLate)
	}
	if want := fmt.Sprintf("(stuck), state S, call %d 0x", unix.SYS_ACCEPT4); !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a thread with %q", err, want)
	}
}
