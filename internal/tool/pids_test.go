// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// In a PID namespace the first process is 1; programs see the id that its parent,
// which is outside, was told. Needs root.
func TestOuterPIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if os.Getenv("SEINE_TEST_SLEEP") != "" {
		time.Sleep(time.Minute)
		return
	}
	child := exec.Command("/proc/self/exe", "-test.run=^TestOuterPIDs$")
	child.Env = append(os.Environ(), "SEINE_TEST_SLEEP=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", child.Process.Pid), &st); err != nil {
		t.Fatal(err)
	}
	inside, err := OuterPIDs(uint32(st.Ino))
	if err != nil {
		t.Fatal(err)
	}
	if len(inside) != 1 || inside[1] != uint32(child.Process.Pid) {
		t.Errorf("got %v, want 1 to be %d", inside, child.Process.Pid)
	}
	if host.InPIDNamespace() {
		return
	}
	all, err := OuterPIDs(host.PIDNamespace())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{os.Getpid(), child.Process.Pid} {
		if all[uint32(pid)] != uint32(pid) {
			t.Errorf("outside %d is %d", pid, all[uint32(pid)])
		}
	}
}
