// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReleaseCode compares the mapped file pages before and after with the
// kernel's own count.
func TestReleaseCode(t *testing.T) {
	before := mappedOfFiles(t)
	ReleaseCode()
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
