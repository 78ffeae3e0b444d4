// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// The floor of a start has all its parts.
func TestPreparing(t *testing.T) {
	p, err := preparing("tcplife")
	if err != nil {
		t.Fatal(err)
	}
	if p.object <= 0 || p.types <= 0 {
		t.Errorf("got %+v, want times", p)
	}
	if p, err := preparing("no such tool"); err == nil {
		t.Errorf("got %+v for a tool that does not exist, want an error", p)
	}
}
