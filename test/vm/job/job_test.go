// SPDX-License-Identifier: Apache-2.0

package job

import "testing"

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		marks string
		code  int
		ok    bool
	}{
		{Started + Exited(0), 0, true},
		{Started + Exited(7), 7, true},
		{Started + Exited(255), 255, true},
		{"started\r\nexited 7\r\n", 7, true}, // a port that was not raw
		{Exited(3) + Exited(4), 3, true},
		{"", 0, false},
		{Started, 0, false},
		{Started + "exited 1", 0, false}, // cut short: may have become 12
		{Started + "exited \n", 0, false},
		{Started + "exited -1\n", 0, false},
		{Started + "exited 256\n", 0, false},
		{"not exited 7\n", 0, false},
	} {
		code, ok := ExitCode(c.marks)
		if code != c.code || ok != c.ok {
			t.Errorf("ExitCode(%q) = %d, %v, want %d, %v", c.marks, code, ok, c.code, c.ok)
		}
	}
}
