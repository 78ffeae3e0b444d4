// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"
)

func TestCPUs(t *testing.T) {
	for list, want := range map[string]string{"0": "[0]", "0-3,5,8-9": "[0 1 2 3 5 8 9]", "": "[]", "3-1": "[]", "a": "[]", "0-99999999": "[]"} {
		got, err := parseCPUs(list)
		if fmt.Sprint(got) != want || (err != nil) != (want == "[]") {
			t.Errorf("%q is %v (%v), want %s", list, got, err, want)
		}
	}
}
