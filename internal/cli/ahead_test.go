// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"
)

// TestBegin: a start begins early only if the flags that follow cannot change what it decodes.
func TestBegin(t *testing.T) {
	for _, c := range []struct {
		line  string
		begun bool
	}{
		{"seine tcplife", true},
		{"/usr/bin/tcplife", true}, // a link
		{"./tcplife -o json", true},
		{"seine tcplife -D 5s --where tx_bytes>0", true},
		{"seine tcplife -- --btf", false}, // early or not is only a matter of time
		{"seine tcplife --btf /boot/types", false},
		{"seine tcplife --btf=/boot/types", false},
		{"seine tcplife -D 5s --from yesterday", false},
		{"seine tcplife --verbose", false},
		{"seine tcplife -v", false},
		{"seine tcplife -vv", false},
		{"seine tcplife -h", false},
		{"seine tcplife --help", false},
		{"tcplife --columns", false},
		{"seine", false},
		{"seine list", false},
		{"seine -v tcplife", false},
		{"seine help tcplife", false},
	} {
		if begun := aheadIn(begin(context.Background(), strings.Fields(c.line))) != nil; begun != c.begun {
			t.Errorf("%s: begun is %v, want %v", c.line, begun, c.begun)
		}
	}
}
