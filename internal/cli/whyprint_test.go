// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"seine/internal/why"
)

// TestHostileFinding: no name of a process, of a host or of a device can move the cursor.
func TestHostileFinding(t *testing.T) {
	const evil = "a\x1b[2J\r\n\u202eb"
	f := &why.Finding{
		Rank: 1, Class: "peer-slow", Rname: "db\x1b[31m", Title: evil + " is slow", Reason: evil, Advice: "look at " + evil, Next: "seine flows", Causes: []int{2},
		Object:   why.Object{Name: evil + " → 10.0.0.5:5432", Raddr: netip.MustParseAddr("10.0.0.5"), Rport: 5432},
		Evidence: []why.Evidence{{What: evil, Value: 1, From: evil}},
	}
	for name, write := range map[string]func(*why.Finding) (string, error){"table": findingTable, "md": findingMarkdown, "json": findingJSON} {
		text, err := write(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range text {
			if c != '\n' && !unicode.IsPrint(c) && name != "json" || unicode.IsControl(c) && c != '\n' {
				t.Errorf("%s: %q in %q", name, c, text)
			}
		}
		if want := `→ 10.0.0.5:5432 (db`; name != "json" && !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %q", name, want, text)
		}
		if want := strings.Count(text, "\n"); name == "table" && want != 6 {
			t.Errorf("%d lines: %q", want, text)
		}
	}
}

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
