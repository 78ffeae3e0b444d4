// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// checkType compares Go type t with the C struct called name in the object.
func checkType(spec *ebpf.CollectionSpec, t reflect.Type, name string) error {
	var st *btf.Struct
	if err := spec.Types.TypeByName(name, &st); err != nil {
		return fmt.Errorf("struct %s: %w", name, err)
	}
	return sameLayout(t, st)
}

// sameLayout compares size, and offset, size and name of each field. An
// embedded Go struct stands for a C member of its type's name.
func sameLayout(t reflect.Type, st *btf.Struct) error {
	if t.Size() != uintptr(st.Size) {
		return fmt.Errorf("%s is %d bytes, struct %s is %d", t, t.Size(), st.Name, st.Size)
	}
	if t.NumField() != len(st.Members) {
		return fmt.Errorf("%s has %d fields, struct %s has %d", t, t.NumField(), st.Name, len(st.Members))
	}
	for i, m := range st.Members {
		f := t.Field(i)
		if fold(f.Name) != fold(m.Name) && f.Name != "_" {
			return fmt.Errorf("%s.%s stands where struct %s has %s", t, f.Name, st.Name, m.Name)
		}
		if f.Offset != uintptr(m.Offset.Bytes()) {
			return fmt.Errorf("%s.%s is at %d, struct %s.%s at %d", t, f.Name, f.Offset, st.Name, m.Name, m.Offset.Bytes())
		}
		if size, err := btf.Sizeof(m.Type); err != nil || uintptr(size) != f.Type.Size() {
			return fmt.Errorf("%s.%s is %d bytes, struct %s.%s is %d (%v)", t, f.Name, f.Type.Size(), st.Name, m.Name, size, err)
		}
		if sub, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok && f.Type.Kind() == reflect.Struct {
			if err := sameLayout(f.Type, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold makes "tx_bytes" and "TXBytes" the same.
func fold(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
