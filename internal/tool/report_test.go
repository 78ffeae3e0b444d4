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

// TestLost: the summary's number has every kind of loss in it, and each has a name of its
// own and a text.
func TestLost(t *testing.T) {
	r := Report{Undecodable: 1, Missed: 2}
	want, bit := uint64(3), uint64(4)
	for i := range r.Losses {
		r.Losses[i] = bit
		want, bit = want+bit, 2*bit
	}
	if got := r.Lost(); got != want {
		t.Errorf("lost %b, want %b", got, want)
	}
	if got := len(r.Warnings()); got != len(r.Losses)+2 {
		t.Errorf("%d warnings of %d kinds", got, len(r.Losses)+2)
	}
	names := map[string]bool{}
	r.each(func(l lossText, _ uint64) {
		if l.one == "" || l.many == "" || names[l.id] {
			t.Errorf("%+v has no text, or another one's name", l)
		}
		names[l.id] = true
	})
}
