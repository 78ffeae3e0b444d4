// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"seine/internal/host"
)

// TestMain is seine itself where a test starts it as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("SEINE_TEST_MAIN") != "" {
		os.Exit(Main(os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// seine is a command line of seine.
func seine(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if len(host.NeedTrace.Missing()) > 0 {
		t.Skip("needs CAP_BPF and CAP_PERFMON")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Args[0] = "seine"
	cmd.Env = append(os.Environ(), "SEINE_TEST_MAIN=1")
	return cmd
}

// TestOutputs: so many outputs as -n says, and with -d one for each interval, that
// of the end among them.
func TestOutputs(t *testing.T) {
	for _, c := range []struct{ args, head string }{
		{"softirqs -C -i 500ms -n 3", "SOFTIRQ "},
		{"softirqs -C -i 500ms -d 1500ms", "SOFTIRQ "},
		{"funccount t:sched:sched_switch 0.5 3", "FUNC "},
		{"funccount t:sched:sched_switch -i 500ms -d 1500ms", "FUNC "},
		{"argdist -C t:sched:sched_switch() -i 500ms -n 3", "COUNT "},
		{"argdist -C t:sched:sched_switch() -i 500ms -d 1500ms", "COUNT "},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			cmd := seine(t, strings.Fields(c.args)...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if n := strings.Count(string(out), c.head); err != nil || n != 3 {
				t.Errorf("got %v, %d outputs, want 3\n%s%s", err, n, out, errs.String())
			}
		})
	}
}
