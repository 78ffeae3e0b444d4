// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSelftestRunsNothingElse: root's self-test starts neither a compiler nor
// programs from the binary's directory.
func TestSelftestRunsNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("cp", seine, dir+"/seine").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ran := filepath.Join(dir, "ran")
	for _, name := range []string{"cc", "gcc", "clang", "clang-14", "resolve-glibc", "resolve-musl", "hot"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho $0 >>"+ran+"\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(dir+"/seine", "doctor", "--selftest", "gethostlatency", "profile")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "self-test") {
		t.Errorf("no self-test has run: %s", out)
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("it ran %s", b)
	}
}
