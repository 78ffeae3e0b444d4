// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReadme holds the figures of README.md against the proofs that they come from.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read("../..", "faults")
	if err != nil {
		t.Fatal(err)
	}
	count := func(kind string) int {
		return len(slices.DeleteFunc(slices.Collect(maps.Keys(p.Figures)), func(name string) bool { return !strings.HasPrefix(name, kind) }))
	}
	for _, want := range []string{
		fmt.Sprintf("%d faults made on purpose", count("fault")),
		fmt.Sprintf("%d healthy loads gave no finding", count("load")),
	} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("README.md does not say %q, as faults.json does", want)
		}
	}
}
