// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// verified is a line of a program's file in /proc/PID/fdinfo, since Linux 5.16.
var verified = regexp.MustCompile(`(?m)^verified_insns:\s+(\d+)$`)

// TestWalked: the verifier walks little more of tcplife's programs than there is. The longest one
// decides when the tool is attached: 1,200 instructions take 2 ms, and 5,000 took 5 ms.
func TestWalked(t *testing.T) {
	p := start(t, nil, "tcplife")
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	programs, most, all := 0, 0, 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if m := verified.FindSubmatch(b); m != nil {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			programs, most, all = programs+1, max(most, n), all+n
		}
	}
	if programs < 5 || most < 1000 {
		t.Fatalf("%d programs, %d instructions at most: the test does not see them", programs, most)
	}
	if most > 3600 || all > 8500 {
		t.Errorf("the verifier walks %d instructions of one program and %d of all, want 3,600 and 8,500 at most", most, all)
	}
}
