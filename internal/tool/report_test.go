// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"slices"
	"strings"
	"testing"
)

// TestWarnings: each kind of loss is named with its number, one or several of it.
func TestWarnings(t *testing.T) {
	r := Report{Missed: 1}
	r.Losses[LossRing], r.Losses[LossStack], r.Losses[LossRead] = 1204, 1, 1
	want := []string{
		"1,204 events did not fit the ring: a larger --buffer or a narrower filter helps",
		"1 stack could not be kept: a larger --memory or a filter helps",
		"1 read of a process's memory failed",
		"1 run of a BPF program was skipped by the kernel: another tracer may be at the same hooks",
	}
	if got := r.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	r = Report{}
	r.Losses[LossOwner] = 2
	if got := r.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "2 rows or tests met a socket of unknown owner: ") || !strings.Contains(got[0], "'seine man TOOL'") {
		t.Errorf("got %q, want what to read", got)
	}
}
