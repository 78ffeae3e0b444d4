// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestLongestFirst: the order of loading is by the programs of the first way. The others may never be loaded.
func TestLongestFirst(t *testing.T) {
	program := func(length int) *ebpf.ProgramSpec {
		return &ebpf.ProgramSpec{Instructions: make(asm.Instructions, length)}
	}
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{
		"a": program(1), "b": program(30), "c": program(20), "d": program(20), "e": program(1000),
	}}
	points := []Point{
		{Name: "short", Ways: []Way{{Programs: []string{"a"}}, {Programs: []string{"e"}}}},
		{Name: "long", Ways: []Way{{Programs: []string{"b"}}}},
		{Name: "none", Ways: []Way{}},
		{Name: "longest", Ways: []Way{{Programs: []string{"c", "d"}}}},
	}
	if got, want := longestFirst(spec, points), []int{3, 1, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
