// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
)

// TestSetKernel: a cache takes the types that it is given for the kernel's. If
// this fails after an update of cilium/ebpf, everything works, and starts slowly.
func TestSetKernel(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Int{Name: "mine", Size: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	c := btf.NewCache()
	setKernel(c, mine)
	if got, err := c.Kernel(); err != nil || got != mine {
		t.Errorf("the cache has other types (%v)", err)
	}
}

// TestTypeOf: the names of relocated types are read right. Each is the same whether it
// is read from the relocation or was kept by its number. If this fails after an
// update of cilium/ebpf, programs are relocated against too few types.
func TestTypeOf(t *testing.T) {
	spec, err := object.Spec("tcplife")
	if err != nil {
		t.Fatal(err)
	}
	kept, relocations := map[uint64]string{}, 0
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			r := btf.CORERelocationMetadata(&p.Instructions[i])
			if r == nil {
				continue
			}
			relocations++
			if got, want := typeOf(r, kept), typeOf(r, map[uint64]string{}); got != want || got == "" {
				t.Errorf("%v: kept %q, read %q", r, got, want)
			}
		}
	}
	for _, want := range []string{"sock", "tcp_sock", "task_struct"} {
		if !slices.Contains(slices.Collect(maps.Values(kept)), want) {
			t.Errorf("no relocation of %s is known, among %v", want, kept)
		}
	}
	if len(kept) == 0 || len(kept) >= relocations {
		t.Errorf("%d names were kept of %d relocations: the number of a type is not found", len(kept), relocations)
	}
	if f, ok := reflect.TypeFor[btf.CORERelocation]().FieldByName("id"); !ok || f.Type != reflect.TypeFor[btf.TypeID]() {
		t.Error("btf.CORERelocation.id is not the number of a type")
	}
}
