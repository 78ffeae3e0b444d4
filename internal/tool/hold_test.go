// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"seine/internal/kern"
)

// TestHold: what came around a moment is shown once, in order, and nothing else; memory has its bound.
func TestHold(t *testing.T) {
	const ms = kern.Mono(time.Millisecond)
	h, err := (&On{Before: 100 * time.Millisecond, After: 50 * time.Millisecond, Keep: "1M"}).NewHold()
	if err != nil {
		t.Fatal(err)
	}
	var got []kern.Mono
	show := func(raw []byte) error {
		got = append(got, kern.Mono(binary.NativeEndian.Uint64(raw))/ms)
		return nil
	}
	come := func(size int, from, to kern.Mono) {
		for at := from; at < to; at++ {
			raw := make([]byte, size)
			binary.NativeEndian.PutUint64(raw, uint64(at*ms))
			if err := h.add(raw, show); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask := func(at kern.Mono) {
		h.asked = append(h.asked, at*ms) // as Show does, by another clock
		if _, err := h.flush(show); err != nil {
			t.Fatal(err)
		}
	}
	want := func(from, to kern.Mono) {
		t.Helper()
		var all []kern.Mono
		for at := from; at < to; at++ {
			all = append(all, at)
		}
		if !slices.Equal(got, all) {
			t.Errorf("got %v, want %d to %d", got, from, to)
		}
		got = nil
	}
	come(100, 10_000, 11_000)
	want(0, 0)
	ask(10_990)
	want(10_890, 11_000)
	come(100, 11_000, 11_200) // until 11,040 as they come
	want(11_000, 11_041)
	ask(11_060) // what was shown is not shown again
	want(11_041, 11_111)
	ask(11_100)
	want(11_111, 11_151)
	come(100, 11_200, 11_300)
	ask(12_000)
	want(0, 0)
	come(100, 12_000, 12_100)
	want(12_000, 12_051)
	if h.warning() != "" {
		t.Errorf("warns %q", h.warning())
	}

	// A megabyte holds less than 100 ms of what comes now.
	come(40_000, 20_000, 21_000)
	if h.bytes > 1<<20 {
		t.Errorf("%d bytes are kept, want 1 MiB at most", h.bytes)
	}
	ask(20_999)
	if n := len(got); n < 15 || n > 26 || got[n-1] != 20_999 || h.warning() == "" {
		t.Errorf("%d shown: %v, warns %q", n, got, h.warning())
	}
	// What is too old goes.
	come(100, 30_000, 30_010)
	come(300_000, 40_000, 40_001)
	if len(h.chunks) != 1 {
		t.Errorf("%d chunks, want 1", len(h.chunks))
	}
}
