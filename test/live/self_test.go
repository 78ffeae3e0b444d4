// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// askPID makes this binary print its own process id, as BPF programs see it.
const askPID = "SEINE_OWN_PID"

// TestOwnPID: a tool knows its own process id in a PID namespace too.
func TestOwnPID(t *testing.T) {
	for _, flags := range []uintptr{0, syscall.CLONE_NEWPID} {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), askPID+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(c.Process.Pid); string(out) != want {
			t.Errorf("with namespaces %#x: %s, want %s", flags, out, want)
		}
	}
}
