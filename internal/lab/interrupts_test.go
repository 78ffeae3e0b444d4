// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHiddenInterrupts: an interrupt with a handler and without a line counts; one that has a line, or no handler, does
// not come again.
func TestHiddenInterrupts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"6/actions": "IPI\n", "6/per_cpu_count": "17,4\n",
		"24/actions": "virtio,eth0\n", "24/per_cpu_count": "9,9\n",
		"7/actions": "\n", "7/per_cpu_count": "0,0\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := Interrupts{Count: map[string]map[int]uint64{"24": {0: 1, 1: 2}}, Text: map[string]string{"24": "PCI-MSI virtio"}}
	if err := got.addHidden(dir); err != nil {
		t.Fatal(err)
	}
	if len(got.Count) != 2 || got.Count["6"][0] != 17 || got.Count["6"][1] != 4 || got.Text["6"] != "IPI" || got.Count["24"][1] != 2 {
		t.Errorf("%+v, want 6 (IPI) with 17 and 4 beside what there was", got)
	}
}
