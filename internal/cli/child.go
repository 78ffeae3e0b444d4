// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// A child is the command of -c: it waits before its first instruction until
// everything is attached.
type child struct {
	pid  uint32
	free chan struct{} // closed by start
	done chan struct{} // closed when it has ended
	cmd  *exec.Cmd
}

// hold starts a command and stops it before its first instruction. A shell finds it,
// splits its words and executes it.
func hold(command string) (*child, error) {
	c := &child{free: make(chan struct{}), done: make(chan struct{})}
	c.cmd = exec.Command("/bin/sh", "-c", "exec "+command)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // ptrace is bound to this thread, which ends with the goroutine
		err := c.cmd.Start()
		if err == nil {
			_, err = unix.Wait4(c.cmd.Process.Pid, nil, 0, nil)
		}
		started <- err
		if err != nil {
			return
		}
		<-c.free
		_ = unix.PtraceDetach(c.cmd.Process.Pid)
		_ = c.cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("-c %s: %w", command, err)
	}
	c.pid = uint32(c.cmd.Process.Pid)
	return c, nil
}

// start lets it run.
func (c *child) start() { close(c.free) }

// end kills the command if it still runs.
func (c *child) end() {
	select {
	case <-c.free:
		_ = c.cmd.Process.Signal(unix.SIGTERM)
	default:
		_ = c.cmd.Process.Kill()
		c.start()
	}
	<-c.done
}
