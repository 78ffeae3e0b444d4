// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"reflect"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// This file and renumber.go of kbtf rely on internals of cilium/ebpf, which lacks functions for these
// tasks. ebpfinternals_test.go fails if an update changes the internals.

// setKernel gives a cache the kernel's types, so that it does not read them all
// itself. btf.Cache has no function for that. If its field changes one day, the
// cache reads them, which is right too and takes longer.
func setKernel(c *btf.Cache, types *btf.Spec) {
	f := reflect.ValueOf(c).Elem().FieldByName("kernelTypes")
	if f.IsValid() && f.Type() == reflect.TypeFor[*btf.Spec]() {
		*(**btf.Spec)(f.Addr().UnsafePointer()) = types
	}
}

// typeOf is the name of the type that is relocated, without the ___flavour that
// sets versions of it apart. btf.CORERelocation has no accessor for it, so it is
// read from String(). That is slow: names keeps it by the type's number, which only
// a private field has.
func typeOf(r *btf.CORERelocation, names map[uint64]string) string {
	id := reflect.ValueOf(r).Elem().FieldByName("id")
	if id.CanUint() {
		if name, ok := names[id.Uint()]; ok {
			return name
		}
	}
	_, name, _ := strings.Cut(r.String(), `"`)
	name, _, _ = strings.Cut(name, `"`)
	name, _, _ = strings.Cut(name, "___")
	if id.CanUint() {
		names[id.Uint()] = name
	}
	return name
}
