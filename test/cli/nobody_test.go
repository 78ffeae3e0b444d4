// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestNobody: doctor reports to a user without capabilities that no tool runs,
// and a self-test that could run nothing does not succeed.
func TestNobody(t *testing.T) {
	t.Parallel()
	as := func(args ...string) (string, int) {
		cmd := exec.Command(seine, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	list, code := as("list", "-o", "json")
	if n := strings.Count(list, "\n"); n != len(names()) || code != 0 {
		t.Errorf("list has %d tools, want %d, and ends with %d", n, len(names()), code)
	}
	roots := strings.Split(run(t, "list", "-o", "json"), "\n")
	for i, line := range slices.Collect(strings.Lines(list)) {
		var e, root struct {
			Tool, Layer, Short, Status string
			Aliases                    []string
		}
		strict(t, line, &e)
		if strict(t, roots[i], &root); root.Status == "runs" && !strings.HasPrefix(e.Status, "needs CAP_BPF") {
			t.Errorf("%s: %q, want what it needs: it runs for root", e.Tool, e.Status)
		}
	}
	if out, code := as("doctor", "--selftest", "tcplife", "tcpbind"); code != 4 || strings.Contains(out, "all well") {
		t.Errorf("the self-test ended with %d, want 4: %s", code, out)
	}
}
