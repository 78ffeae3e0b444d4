// SPDX-License-Identifier: Apache-2.0

package skblife

import (
	"slices"
	"testing"
)

// TestOrder: points are attached in their order. If a softirq ended between enter and leave, its processor would be taken to run
// it until the next one ends, and what a process makes there meanwhile would not be counted.
func TestOrder(t *testing.T) {
	var got []string
	for _, p := range Tool.Points {
		got = append(got, p.Name)
	}
	if want := []string{"leave", "enter", "life"}; !slices.Equal(got, want) {
		t.Errorf("points are attached in the order %q, want %q", got, want)
	}
}
