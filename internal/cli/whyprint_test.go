// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"seine/internal/why"
)

// TestEvidence: a closer look is shorter than the look, and its numbers say so.
func TestEvidence(t *testing.T) {
	f := &why.Finding{Class: "udp-overflow", Evidence: []why.Evidence{
		{What: "datagrams dropped", Value: 4450, From: "skbdrop", Window: 10},
		{What: "times that a buffer of web had no room", Value: 2400, From: "sormem", Window: 5},
		{What: "its limit", Value: 8192, Unit: "bytes", From: "sormem", Window: 5},
	}}
	text, err := findingTable(f)
	if err != nil {
		t.Fatal(err)
	}
	want := "datagrams dropped 4,450 (skbdrop), times that a buffer of web had no room 2,400, its limit 8,192 bytes (sormem in 5 s)\n"
	if !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}
