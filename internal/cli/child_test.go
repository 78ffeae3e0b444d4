// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seine/internal/host"
)

// TestChild: the command of -c does nothing before it is started, and is found
// by its words as a shell has them.
func TestChild(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b")
	c, err := hold("touch '" + file + "'")
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	time.Sleep(50 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran before it was started")
	}
	c.start()
	<-c.done
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the command did not run: %v", err)
	}
}

// TestChildEnds: one that was never started does not stay.
func TestChildEnds(t *testing.T) {
	c, err := hold("sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	c.end()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", c.pid)); err == nil {
		t.Errorf("process %d is still there", c.pid)
	}
}

// TestRunCommand has a script count what the command of -c does, and end with it.
func TestRunCommand(t *testing.T) {
	if len(host.NeedTrace.Missing()) > 0 {
		t.Skip("needs CAP_BPF and CAP_PERFMON")
	}
	var out, errs bytes.Buffer
	err := execute(t.Context(), []string{"seine", "run", "-c", "cat /nonexistent/a /nonexistent/b", "-e",
		`t:syscalls:sys_enter_openat /pid == cpid && strncmp(str(args.filename), "/nonexistent/", 13) == 0/ { @ = count(); }`}, &out, &errs)
	if err != nil || !strings.Contains(out.String(), "@: 2\n") {
		t.Errorf("got %v\n%s%s\nwant @: 2", err, out.String(), errs.String())
	}
}
