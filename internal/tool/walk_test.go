// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
)

// TestWalk fills a hash, reads it by each method, and counts what it gets. A
// batch of one entry is smaller than most buckets, so it has to grow.
func TestWalk(t *testing.T) {
	methods := map[string]func(*ebpf.Map, bool, func(k, v []byte) error) error{
		"batches": func(m *ebpf.Map, take bool, f func(k, v []byte) error) error {
			return walkBatches(m, take, batchBytes, f)
		},
		"batches of one": func(m *ebpf.Map, take bool, f func(k, v []byte) error) error { return walkBatches(m, take, 1, f) },
		"keys":           walkKeys,
	}
	const entries = 1009
	for name, method := range methods {
		for _, take := range []bool{false, true} {
			m := newHash(t, 12, 24, 2048)
			for i := range entries {
				k, v := make([]byte, 12), make([]byte, 24)
				binary.NativeEndian.PutUint32(k[4:], uint32(i))
				binary.NativeEndian.PutUint64(v[16:], uint64(i)*3)
				if err := m.Put(k, v); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[uint32]bool{}
			err := method(m, take, func(k, v []byte) error {
				i := binary.NativeEndian.Uint32(k[4:])
				if got := binary.NativeEndian.Uint64(v[16:]); got != uint64(i)*3 {
					t.Errorf("%s: entry %d holds %d, want %d", name, i, got, i*3)
				}
				seen[i] = true
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(seen) != entries {
				t.Errorf("%s: %d entries, want %d", name, len(seen), entries)
			}
			left, want := 0, entries
			if take {
				want = 0
			}
			if err := Walk(m, func(_, _ []byte) error { left++; return nil }); err != nil || left != want {
				t.Errorf("%s, take %t: %d entries left (%v), want %d", name, take, left, err, want)
			}
		}
	}
}

// newHash makes a map, or skips the test where that is not allowed.
func newHash(t *testing.T, key, value, entries uint32) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: key, ValueSize: value, MaxEntries: entries})
	if errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestWalkAgain: walking over a map again takes no new memory. Tools do it 20 times a second.
func TestWalkAgain(t *testing.T) {
	m := newHash(t, 12, 24, 10_000)
	walks := func(n int) {
		for range n {
			if err := Walk(m, func(_, _ []byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	walks(1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 50
	walks(n)
	runtime.ReadMemStats(&after)
	// The race detector has the pool forget a quarter.
	if took := after.TotalAlloc - before.TotalAlloc; took > n*batchBytes/2 {
		t.Errorf("%d walks took %d bytes", n, took)
	}
}
