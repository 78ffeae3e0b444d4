// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"seine/internal/tool"
	"seine/tools"
)

// TestGroups: a counting tool counts by the key columns that are shown, or that an
// expression asks for, so that no two rows look the same.
func TestGroups(t *testing.T) {
	for _, tt := range []struct{ tool, flags, want string }{
		{"skbdrop", "", "reason location kstack"},
		{"skbdrop", "--columns=-kstack", "reason location"},
		{"skbdrop", "--columns=+dev,-kstack", "reason location dev"},
		{"skbdrop", "--columns=reason,count", "reason"},
		{"skbdrop", "--columns=count", ""},
		{"skbdrop", "--columns=count --sort=reason", "reason"},
		{"skbdrop", "--columns=netns,counter", "netns"},
		{"skbdrop", "--columns=-kstack -o folded", "reason location kstack"},
		{"skbdrop", "--columns=-kstack --by=kstack", "kstack"},
		{"socketio", "--columns=dir,bytes --where comm!=\"x\"&&pid>1", "comm pid dir"},
	} {
		i := slices.IndexFunc(tools.All, func(tl *tool.Tool) bool { return tl.Name == tt.tool })
		_, o, err := Parse(tools.All[i], strings.Fields(tt.flags))
		if err != nil {
			t.Errorf("%s %s: %v", tt.tool, tt.flags, err)
		} else if got := strings.Join(o.By, " "); got != tt.want {
			t.Errorf("%s %s counts by %q, want %q", tt.tool, tt.flags, got, tt.want)
		}
	}
}
