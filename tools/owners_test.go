// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
	"seine/internal/tool"
)

// fieldsOf is the offsets of the fields of a map's values, including fields of
// anonymous structs.
func fieldsOf(t *testing.T, m *ebpf.MapSpec) map[string]btf.Bits {
	t.Helper()
	s, ok := btf.As[*btf.Struct](m.Value)
	if !ok {
		t.Fatalf("%s has values of %v", m.Name, m.Value)
	}
	out := map[string]btf.Bits{}
	for _, f := range s.Members {
		if u, ok := btf.As[*btf.Union](f.Type); ok && f.Name == "" {
			for _, g := range u.Members {
				out[g.Name] = f.Offset + g.Offset
			}
			continue
		}
		out[f.Name] = f.Offset
	}
	return out
}

// TestOwnersLayout: a tool that shares the table of owners reads each field at the
// offset at which the table's object writes it. Only fields of the tool's own are in a
// separate map.
func TestOwnersLayout(t *testing.T) {
	table, err := object.Spec(tool.Owners.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := fieldsOf(t, table.Maps["owners"])
	tools := 0
	for _, tl := range All {
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		m := spec.Maps["owners"]
		if m == nil {
			continue
		}
		tools++
		for name, at := range fieldsOf(t, m) {
			if where, ok := want[name]; name == "own" {
				if spec.Maps["owner_own"] == nil {
					t.Errorf("%s has nowhere to keep its own fields", tl.Name)
				}
			} else if !ok || where != at {
				t.Errorf("%s has the field %s of an owner at bit %d, the table at %d (%v)", tl.Name, name, at, where, ok)
			}
		}
		if l := spec.Maps["listeners"]; l != nil && (l.KeySize != table.Maps["listeners"].KeySize || l.ValueSize != table.Maps["listeners"].ValueSize) {
			t.Errorf("%s has other listeners than the table", tl.Name)
		}
		for _, name := range []string{"owner_needs", "owner_shared"} {
			if spec.Variables[name] == nil {
				t.Errorf("%s has no %s", tl.Name, name)
			}
		}
	}
	if tools < 10 {
		t.Errorf("%d tools ask for owners", tools)
	}
}
