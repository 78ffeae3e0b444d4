// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
)

// TestOwnerOptions: Go and C have the same options.
func TestOwnerOptions(t *testing.T) {
	spec, err := object.Spec(Owners.Name)
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("owner_option", &enum); err != nil {
		t.Fatal(err)
	}
	want := map[string]ownerOption{
		"OWNER_LISTENERS": ownerListeners, "OWNER_LISTENERS_ONLY": ownerListenersOnly, "OWNER_ALL": ownerAll, "OWNER_TIMES": ownerTimes,
		"OWNER_GIVES": ownerGives, "OWNER_STATE_IN_TOOL": ownerStateInTool, "OWNER_ENDS_AT_CLOSE": ownerEndsAtClose,
		"OWNER_IO_IN_TOOL": ownerIOInTool, "OWNER_COOKIES_IN_TOOL": ownerCookiesInTool, "OWNER_FINDS": ownerFinds,
		"OWNER_ACCEPTS": ownerAccepts, "OWNER_OWN": ownerOwn, "OWNER_TABLE": ownerTable, "OWNER_SHARED": ownerShared,
	}
	for _, v := range enum.Values {
		if got, ok := want[v.Name]; !ok || uint64(got) != v.Value {
			t.Errorf("%s is %d in C, %d in Go", v.Name, v.Value, got)
		}
		delete(want, v.Name)
	}
	for name := range want {
		t.Errorf("%s is not in C", name)
	}
}

// TestOwnersAsked: the table has what any of its tools asks for, and no more than listeners only if
// all of them ask for no more.
func TestOwnersAsked(t *testing.T) {
	backlog, gives, all := ownerListeners|ownerListenersOnly, ownerListeners|ownerGives, ownerAll|ownerOwn
	for _, c := range []struct {
		tools []ownerOption
		want  ownerOption
	}{
		{[]ownerOption{backlog}, ownerListenersOnly},
		{[]ownerOption{backlog, backlog}, ownerListenersOnly},
		{[]ownerOption{backlog, ownerListeners}, 0},
		{[]ownerOption{gives, backlog}, ownerTimes},
		{[]ownerOption{all, gives}, ownerAll | ownerTimes},
	} {
		got := c.tools[0].asks()
		for _, o := range c.tools[1:] {
			got = got.with(o.asks())
		}
		if got != c.want {
			t.Errorf("%b together ask for %b, want %b", c.tools, got, c.want)
		}
	}
}
