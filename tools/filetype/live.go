// SPDX-License-Identifier: Apache-2.0

package filetype

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyInterrupted, readInterrupted)
	return []trial.Case{
		{Name: "pid", Run: byPID}, {Name: "interrupted", Run: interrupted}}
}

// byPID: only the process of --pid is counted.
func byPID(x *trial.Trial) error {
	a, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	b, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	if err := x.Attach("--by=pid,thread,type", "--comm=lab-f*"); err != nil {
		return err
	}
	for _, f := range []*lab.Files{a, b} {
		if _, err := f.Run(); err != nil {
			return err
		}
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, r := range rows {
		if trial.Value(r.Get("type")) == "socket:inet" && trial.Value(r.Get("thread")) == lab.FilesComm {
			x.WantSum(r, "count", 44, 1)
			seen[trial.Value(r.Get("pid"))]++
		}
	}
	if len(seen) != 2 {
		x.Errorf("IPv4 sockets of %d processes, want 2", len(seen))
	}
	return nil
}

const bodyInterrupted = "filetype-interrupted"

// readInterrupted reads one byte from a pipe. Seven signals interrupt the read;
// Go's handlers make the kernel restart the call.
func readInterrupted(c *lab.Child) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	pid, done := os.Getpid(), make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 7 && err == nil; i++ {
			err = errors.Join(asleep(pid), unix.Tgkill(pid, pid, unix.SIGURG))
		}
		unix.Write(p[1], []byte{1})
		done <- err
	}()
	if n, err := unix.Read(p[0], make([]byte, 8)); n != 1 || err != nil {
		return fmt.Errorf("read %d bytes, want 1: %w", n, err)
	}
	return <-done
}

// asleep waits until the main thread of a process waits in a system call.
func asleep(pid int) error {
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") S ") {
			return err
		}
	}
}

// interrupted: a read that the kernel restarts after signals counts once.
func interrupted(x *trial.Trial) error {
	p, err := x.World.StartReady("", "reader", bodyInterrupted, nil)
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { return errors.Join(p.Tell("go"), p.Wait()) }, "--by=tid,op,type", fmt.Sprintf("--pid=%d", p.PID))
	if err != nil {
		return err
	}
	seen := false
	for _, r := range rows { // others talk to the parent
		if trial.Value(r.Get("tid")) == fmt.Sprint(p.PID) && trial.Value(r.Get("op")) == "read" && trial.Value(r.Get("type")) == "pipe" {
			x.Want(r, "count", 1)
			x.Want(r, "errors", 0)
			x.Want(r, "bytes", 1)
			seen = true
		}
	}
	if !seen {
		x.Errorf("the read was not counted")
	}
	return nil
}
