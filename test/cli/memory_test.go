// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seine/internal/lab"
)

// status is a size of the process in kB.
func (p *process) status(name string) (kb int) {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name+":")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return kb
}

// TestMemoryGivenBack: a tool that is ready does not keep the memory that its start took.
func TestMemoryGivenBack(t *testing.T) {
	inPages := filepath.Join(t.TempDir(), "seine")
	if err := lab.CopyInPages(seine, inPages); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		most int // kB, and 7/10 of the peak
	}{
		{[]string{"tcplife"}, 18_000},
		{[]string{"with", "tcplife", "tcpretrans"}, 20_000},
		{[]string{"record", "tcplife", "--dir", filepath.Join(t.TempDir(), "rec")}, 20_000},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			p := startWith(t, func(cmd *exec.Cmd) { cmd.Path = inPages }, c.args...)
			peak, resident := 0, 0
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // it says ready before
				if peak, resident = p.status("VmHWM"), p.status("VmRSS"); resident <= min(c.most, peak*7/10) {
					return
				}
			}
			t.Errorf("%d kB are resident, want %d at most and 7/10 of the peak of %d kB", resident, c.most, peak)
		})
	}
}
