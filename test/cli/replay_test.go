// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seine/tools"
)

// TestReplay records every tool over its own demo traffic while it shows it. The recording
// must print the same bytes. Tools that doctor says this kernel cannot run are left out.
func TestReplay(t *testing.T) {
	var d verdict
	strict(t, run(t, "doctor", "-o", "json"), &d)
	cannot := map[string]string{}
	for _, tl := range d.Tools {
		if !tl.Runs {
			cannot[tl.Tool] = tl.Why
		}
	}
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			if why := cannot[tl.Name]; why != "" {
				t.Skip(why)
			}
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "rec")
			live := exec.Command(seine, "demo", tl.Name, "-d", "1m", "--tee", dir)
			var shown, said bytes.Buffer
			live.Stdout, live.Stderr = &shown, &said
			if err := live.Run(); exitCode(err) == 3 && strings.Contains(said.String(), "mac80211_hwsim") {
				t.Skip(strings.TrimSpace(said.String())) // Wi-Fi that cannot be simulated
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
			if shown.Len() == 0 {
				t.Error("the demo showed nothing")
			}
			if !bytes.Equal(got, shown.Bytes()) {
				t.Errorf("live\n%s\nreplayed\n%s", shown.Bytes(), got)
			}
		})
	}
}

// TestOneWriter: a directory has one recorder. A second one is refused with the PID of the
// first, which goes on.
func TestOneWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	first := start(t, nil, "record", "tcplife", "--dir", dir)
	out, err := exec.Command(seine, "record", "tcplife", "--dir", dir, "-d", "1").CombinedOutput()
	want := fmt.Sprintf("seine: process %d records into %s", first.cmd.Process.Pid, dir)
	if exitCode(err) != 1 || !strings.HasPrefix(string(out), want) {
		t.Errorf("got %v, %q; want exit code 1 and %q", err, out, want)
	}
	first.signal(syscall.SIGINT)
	first.wantEnd(0)
}
