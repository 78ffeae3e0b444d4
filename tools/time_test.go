// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"slices"
	"testing"

	"seine/internal/row"
	"seine/internal/tool"
)

// fast are the tools whose rows are packets: several rows a second are normal.
var fast = []string{"ipecn", "tcpdrop", "tcpretrans", "tcpsnoop"}

// TestTimes: rows that come faster than one a second have a clock with microseconds.
func TestTimes(t *testing.T) {
	eachView(t, func(t *testing.T, tl *tool.Tool, v tool.View, s *row.Schema, _ int) {
		stream := v.Output.Kind() == tool.Events && s.Index("time") >= 0
		if stream && slices.Contains(fast, tl.Name) && v.Time != "micro" {
			t.Errorf("view %q: the time reads as %q, want micro", s.View, v.Time)
		}
	})
}
