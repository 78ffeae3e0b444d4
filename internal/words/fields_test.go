// SPDX-License-Identifier: Apache-2.0

package words

import (
	"slices"
	"testing"
)

func TestFields(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{"", nil},
		{"tcplife", []string{"tcplife"}},
		{"  tcpretrans  --by cause ", []string{"tcpretrans", "--by", "cause"}},
		{`tcplife --where 'comm == "a b"' -x`, []string{"tcplife", "--where", `comm == "a b"`, "-x"}},
		{`a "b \" c" d\ e '' x"y"z`, []string{"a", `b " c`, "d e", "", "xyz"}},
	} {
		got, err := Fields(c.line)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q and error %v, want %q", c.line, got, err, c.want)
		}
	}
	for _, line := range []string{`a 'b`, `a "b`, `a\`} {
		if got, err := Fields(line); err == nil {
			t.Errorf("%s: got %q, want an error", line, got)
		}
	}
}
