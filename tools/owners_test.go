// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
	"seine/internal/tool"
)

// fieldsOf is the fields of a struct and of the structs and unions without a name in it, as far as
// they are the same for all tools.
func fieldsOf(t *testing.T, typ btf.Type) (out []string) {
	t.Helper()
	var members []btf.Member
	switch c := btf.UnderlyingType(typ).(type) {
	case *btf.Struct:
		members = c.Members
	case *btf.Union:
		members = c.Members
	default:
		t.Fatalf("%v has no fields", typ)
	}
	for _, m := range members {
		switch {
		case m.Name == "own": // of the tool
		case m.Name == "":
			for _, f := range fieldsOf(t, m.Type) {
				out = append(out, fmt.Sprint(m.Offset.Bytes(), "+", f))
			}
		default:
			out = append(out, fmt.Sprint(m.Offset.Bytes(), " ", m.Name))
		}
	}
	return out
}

// TestOwnersLayout: the entry of an owner is the same in all objects, so a tool can look it up in
// the table that it shares with others. A tool has a map of its own only if it has fields of its
// own, which are then in that map.
func TestOwnersLayout(t *testing.T) {
	table, err := object.Spec(tool.Owners.Name)
	if err != nil {
		t.Fatal(err)
	}
	want := table.Maps["owners"]
	tools := 0
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		m := spec.Maps["owners"]
		if m == nil {
			return
		}
		tools++
		if a, b := fieldsOf(t, m.Value), fieldsOf(t, want.Value); m.ValueSize != want.ValueSize || !slices.Equal(a, b) {
			t.Errorf("an entry has %d bytes, %v; in the table %d, %v", m.ValueSize, a, want.ValueSize, b)
		}
		if has, want := spec.Maps["owner_own"] != nil, tl.Name == "sormem" || tl.Name == "tcpstates"; has != want {
			t.Errorf("a map for fields of its own: %v, want %v", has, want)
		}
		l, want := spec.Maps["listeners"], table.Maps["listeners"]
		if l.KeySize != want.KeySize || l.ValueSize != want.ValueSize {
			t.Errorf("other listeners than the table")
		}
	})
	if tools < 10 {
		t.Errorf("%d tools ask for owners", tools)
	}
}

// TestOwnersPoints: a tool has those points of owner.h that its options leave.
func TestOwnersPoints(t *testing.T) {
	want := map[string]string{
		"owners":     "owner_gone owner_state owner_release owner_accept owner_uring owner_made owner_send owner_recv owner_copied owner_seed",
		"capture":    "owner_gone owner_release owner_accept owner_uring owner_made owner_send owner_recv owner_copied owner_seed",
		"flows":      "owner_accept owner_uring owner_seed",
		"sormem":     "owner_gone owner_state owner_release owner_accept owner_uring owner_made owner_send owner_recv owner_copied owner_seed",
		"tcpcong":    "owner_gone owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpdrop":    "owner_gone owner_state owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcplife":    "owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpretrans": "owner_state owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcprtt":     "owner_gone owner_state owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpsnoop":   "owner_gone owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpstates":  "owner_gone owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpsynbl":   "owner_state owner_seed",
		"tcptop":     "owner_gone owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
		"tcpwin":     "owner_gone owner_accept owner_uring owner_send owner_recv owner_copied owner_seed",
	}
	for _, tl := range append(slices.Clone(All), tool.Owners) {
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Variables["owner_options"] == nil {
			continue
		}
		var got []string
		for _, p := range tl.EveryPoint(spec, tl.NewConfig()) {
			if strings.HasPrefix(p.Name, "owner_") {
				got = append(got, p.Name)
			}
		}
		if w := want[tl.Name]; strings.Join(got, " ") != w {
			t.Errorf("%s has the points %v, want %s", tl.Name, got, w)
		}
		delete(want, tl.Name)
	}
	for name := range want {
		t.Errorf("%s does not include owner.h", name)
	}
}
