// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seine/internal/host"
	"seine/internal/lab"
)

// inPages is set in the copy of this program that TestReleaseCode starts.
const inPages = "SEINE_IN_PAGES"

// TestReleaseCode compares the mapped file pages before and after with the
// kernel's own count.
func TestReleaseCode(t *testing.T) {
	if os.Getenv(inPages) == "" {
		self := filepath.Join(t.TempDir(), "host.test")
		if err := lab.CopyInPages("/proc/self/exe", self); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestReleaseCode$")
		cmd.Env = append(os.Environ(), inPages+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	before := mappedOfFiles(t)
	host.ReleaseCode()
	if after := mappedOfFiles(t); after > before*3/4 {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
}

func mappedOfFiles(t *testing.T) (kb int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
