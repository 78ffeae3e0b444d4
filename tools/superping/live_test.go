// SPDX-License-Identifier: Apache-2.0

package superping

import "testing"

// ping prints three decimals below a millisecond, and one less for each power of ten above.
func TestAtMost(t *testing.T) {
	for text, want := range map[string]float64{"0.031": 31.5, "1.04": 1045, "12.3": 12350, "104": 104500} {
		if got, err := atMost(text); err != nil || got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s ms: %v us at most, %v, want %v", text, got, err, want)
		}
	}
}
