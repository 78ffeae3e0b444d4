// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"os"
	"testing"

	"seine/internal/kbtf"
	"seine/internal/object"
	"seine/internal/probe"
)

// TestOnePass: all types of the kernel are looked through once for all questions that settle asks.
func TestOnePass(t *testing.T) {
	for _, name := range []string{"tcplife", "soconnect", "skbdrop"} {
		types, err := kbtf.Running()
		if errors.Is(err, os.ErrNotExist) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		spec, err := object.Spec(name)
		if err != nil {
			t.Fatal(err)
		}
		k := probe.Offline(types)
		names, err := asked(name)
		if err != nil {
			t.Fatal(err)
		}
		k.Types.Look(names...)
		p := &Prepared{spec: spec}
		if err := p.settle(k); err != nil {
			t.Fatal(err)
		}
		if n := types.Passes(); n != 1 {
			t.Errorf("%s: %d passes, want 1", name, n)
		}
	}
}
