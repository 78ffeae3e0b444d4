// SPDX-License-Identifier: Apache-2.0

package words

import "testing"

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(0, "row", "rows"), "0 rows"},
		{Count(1, "row", "rows"), "1 row"},
		{Count(1204, "row", "rows"), "1,204 rows"},
		{Thousands(999), "999"},
		{Thousands(1000), "1,000"},
		{Thousands(18446744073709551615), "18,446,744,073,709,551,615"},
		{And(nil), ""},
		{And([]string{"a"}), "a"},
		{And([]string{"a", "b"}), "a and b"},
		{And([]string{"a", "b", "c"}), "a, b and c"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
