// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"os/exec"
	"testing"
	"time"
)

// TestProcessorTime: the time of another process is what the kernel says at its end.
func TestProcessorTime(t *testing.T) {
	c := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; read x")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	got := processorTime(c.Process.Pid)
	in.Close()
	c.Wait()
	all := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if got < 50*time.Millisecond || got > all || all-got > 20*time.Millisecond {
		t.Errorf("%v until its end, %v in all", got, all)
	}
	if got := processorTime(c.Process.Pid); got != 0 {
		t.Errorf("%v of a process that has ended", got)
	}
}
