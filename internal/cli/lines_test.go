// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
)

// TestLines: the verifier's log of -vv has lines of source code.
func TestLines(t *testing.T) {
	tl, _ := find("tcplife")
	for _, c := range []struct {
		flag string
		want bool
	}{{"-v", false}, {"-vv", true}} { // in this order: lines stay on
		if _, _, err := Parse(tl, []string{c.flag}); err != nil {
			t.Fatal(err)
		}
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			if _, got := p.Instructions[0].Source().(*btf.Line); got != c.want {
				t.Errorf("%s: %s has lines: %v, want %v", c.flag, name, got, c.want)
			}
		}
	}
}
