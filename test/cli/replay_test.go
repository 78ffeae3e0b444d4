// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seine/tools"
)

// TestReplay records every tool over its own demo traffic while it shows it. The recording
// must print the same bytes.
func TestReplay(t *testing.T) {
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "rec")
			live := exec.Command(seine, "demo", tl.Name, "-d", "3", "--tee", dir)
			var shown, said bytes.Buffer
			live.Stdout, live.Stderr = &shown, &said
			if err := live.Run(); exitCode(err) == 3 {
				t.Skip(strings.TrimSpace(said.String())) // as for Wi-Fi
			} else if err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			again := exec.Command(seine, tl.Name, "--from", dir)
			said.Reset()
			again.Stderr = &said
			got, err := again.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, said.String())
			}
			if !bytes.Equal(got, shown.Bytes()) {
				t.Errorf("live\n%s\nreplayed\n%s", shown.Bytes(), got)
			}
		})
	}
}
