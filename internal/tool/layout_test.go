// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
)

// TestLayout: a Go struct that differs from the C one in size, order, name or
// offset is found out.
func TestLayout(t *testing.T) {
	u32, u64 := &btf.Int{Name: "u32", Size: 4}, &btf.Int{Name: "u64", Size: 8}
	c := &btf.Struct{Name: "thing", Size: 16, Members: []btf.Member{
		{Name: "tx_bytes", Type: u64, Offset: 0},
		{Name: "pid", Type: u32, Offset: 64},
		{Name: "pad", Type: u32, Offset: 96},
	}}
	for _, g := range []struct {
		v    any
		want string
	}{
		{struct {
			TXBytes  uint64
			PID, Pad uint32
		}{}, ""},
		{struct {
			TXBytes uint64
			PID     uint32
		}{}, "2 fields"},
		{struct{ TXBytes, PID uint64 }{}, "2 fields"},
		{struct {
			PID, Pad uint32
			TXBytes  uint64
		}{}, "stands where"},
		{struct{ TXBytes, PID, Pad uint64 }{}, "24 bytes"},
	} {
		err := sameLayout(reflect.TypeOf(g.v), c)
		switch {
		case g.want == "" && err != nil:
			t.Errorf("%T: %v", g.v, err)
		case g.want != "" && (err == nil || !strings.Contains(err.Error(), g.want)):
			t.Errorf("%T: got %v, want an error with %q", g.v, err, g.want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"10": 10 * time.Second, "500ms": 500 * time.Millisecond, "1.5": 1500 * time.Millisecond, "2m": 2 * time.Minute} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q is %v (%v), want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "-1s", "1.2.3", "5 s"} {
		if d, err := ParseDuration(s); err == nil {
			t.Errorf("%q was taken as %v", s, d)
		}
	}
}
