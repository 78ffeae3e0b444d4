// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"seine/internal/host"
	"seine/test/proof"
)

// TestReport: docs/FLEET.md has the text that report writes. The log and the figures are those of the last run. Tables
// are not compared: the proof has rounded figures.
func TestReport(t *testing.T) {
	have, err := os.ReadFile("../../docs/FLEET.md")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../proof/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	var p proof.Proof
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(have), "```\n")
	log, _, _ := strings.Cut(rest, "\n```")
	f := &fleet{hosts: make([]*member, *hostCount), lines: strings.Split(log, "\n")}
	for name, text := range p.Figures {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		f.figures = append(f.figures, figure{name: name, value: v})
	}
	made := strings.Replace(f.report(), "Kernel "+host.KernelVersion(), "Kernel "+p.Kernels[0], 1)
	want, got := prose(made), prose(string(have))
	if len(got) != len(want) {
		t.Errorf("docs/FLEET.md has %d lines of text, want %d", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if got[i] != want[i] {
			t.Fatalf("docs/FLEET.md: %q, want %q", got[i], want[i])
		}
	}
}

// prose is the lines that are not of a table.
func prose(text string) (out []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			out = append(out, line)
		}
	}
	return out
}
