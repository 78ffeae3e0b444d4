// SPDX-License-Identifier: Apache-2.0

package kbtf

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestRenumber: types are found by name and by their new number, and have that number. If this fails after an update of
// cilium/ebpf, no tool starts.
func TestRenumber(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Fwd{}, &btf.Int{Name: "one", Size: 1}, &btf.Int{Name: "two", Size: 2}, &btf.Int{Name: "three", Size: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if err := renumber(spec, []ID{0, 0, 7, 600, 130_000}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]btf.TypeID{"one": 7, "two": 600, "three": 130_000} {
		typ, err := spec.AnyTypeByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := spec.TypeID(typ); id != want || err != nil {
			t.Errorf("%s has number %d, want %d (%v)", name, id, want, err)
		}
		if typ, err := spec.TypeByID(want); err != nil || typ.TypeName() != name {
			t.Errorf("number %d is %v, want %s (%v)", want, typ, name, err)
		}
	}
	for _, id := range []btf.TypeID{1, 2, 3, 8, 599, 601} {
		if typ, err := spec.TypeByID(id); err != nil || typ.TypeName() != "" {
			t.Errorf("number %d is %v, want a type without a name (%v)", id, typ, err)
		}
	}
	if _, err := spec.TypeByID(130_001); !errors.Is(err, btf.ErrNotFound) {
		t.Errorf("a number behind the last: %v", err)
	}
	if err := renumber(spec, []ID{0, 0, 7}); !errors.Is(err, errInternals) {
		t.Errorf("fewer numbers than types: %v", err)
	}
}

// TestTags: a tag of a type is not in a part, also if its text is a name that was asked for.
func TestTags(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{
		&btf.Struct{Name: "tagged", Size: 4, Members: []btf.Member{{Name: "a", Type: &btf.Int{Name: "int", Size: 4}}}, Tags: []string{"wanted"}},
		&btf.Int{Name: "wanted", Size: 8},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types := read(t, raw, nil)
	if n := len(types.Find("wanted", Int, DeclTag)); n != 2 {
		t.Fatalf("the sample has %d types of that name, want 2", n)
	}
	part, err := types.Part([]string{"tagged", "wanted"})
	if err != nil {
		t.Fatal(err)
	}
	tagged, err := part.AnyTypeByName("tagged")
	if err != nil {
		t.Fatal(err)
	}
	if s := tagged.(*btf.Struct); len(s.Members) != 1 || len(s.Tags) != 0 {
		t.Errorf("%v has the tags %v", s, s.Tags)
	}
	if _, err := part.AnyTypeByName("wanted"); err != nil {
		t.Error(err)
	}
}

// TestPartIsSmall: a part takes the number of where each of the kernel's types is, and little more.
func TestPartIsSmall(t *testing.T) {
	types, err := Running()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no BTF here")
	}
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"sock", "task_struct", "btf_trace_inet_sock_set_state"}
	types.Look(names...)
	took := make([]uint64, 3) // another goroutine may allocate too
	for i := range took {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := types.Part(names); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		took[i] = after.TotalAlloc - before.TotalAlloc
	}
	if most := uint64(types.count)*9 + 1<<20; slices.Min(took) > most {
		t.Errorf("a part of %d types takes %v bytes, want at most %d", types.count, took, most)
	}
}
