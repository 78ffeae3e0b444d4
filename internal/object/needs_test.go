// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"slices"
	"testing"

	"seine/internal/object"
	"seine/internal/probe"
	"seine/tools"
)

// TestNeeds: the names beside an object are those that its programs need. Without one of them a program
// would find no such type in the kernel.
func TestNeeds(t *testing.T) {
	names := []string{"owners"}
	for _, tl := range tools.All {
		names = append(names, tl.Name)
	}
	for _, name := range names {
		spec, err := object.Spec(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := object.Needs(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := probe.Needs(spec); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
