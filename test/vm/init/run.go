// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"seine/test/vm/job"
)

// A port is a serial line to the runner.
type port struct{ *os.File }

// openPorts opens all but the console's. Bytes pass as they are.
func openPorts() ([job.Ports]port, error) {
	var ports [job.Ports]port
	for n := job.Console + 1; n < job.Ports; n++ {
		f, err := os.OpenFile(job.Port(n), os.O_WRONLY|unix.O_NOCTTY, 0)
		if err != nil {
			return ports, err
		}
		raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200}
		if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw); err != nil {
			return ports, fmt.Errorf("set up %s: %w", job.Port(n), err)
		}
		ports[n] = port{f}
	}
	return ports, nil
}

// say writes text and waits until the host has it.
func (p port) say(text string) error {
	if _, err := io.WriteString(p, text); err != nil {
		return err
	}
	return p.drain()
}

func (p port) drain() error { return unix.IoctlSetInt(int(p.Fd()), unix.TCSBRK, 1) }

// run runs the command to its end and returns its exit code, 128 and the
// signal's number if one ended it. When it returns, every process that the
// command left behind is gone and all output has left the guest.
func run(j job.Job, ports [job.Ports]port) (int, error) {
	os.Setenv("PATH", job.Home+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8", "TMPDIR=/tmp"}, j.Env...)
	name, err := exec.LookPath(j.Args[0])
	if err != nil {
		return 0, err
	}
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	files := []uintptr{stdin.Fd()}
	var pipes []*os.File
	done := make(chan error)
	// The command gets pipes, because its output to a terminal might
	// differ.
	for _, n := range []int{job.Stdout, job.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		files = append(files, w.Fd())
		pipes = append(pipes, w)
		go func() {
			_, err := io.Copy(ports[n].File, r)
			if err == nil {
				err = ports[n].drain()
			}
			done <- err
		}()
	}
	if err := ports[job.Marks].say(job.Started); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(name, j.Args, &syscall.ProcAttr{
		Dir: job.Home, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	for _, w := range pipes {
		w.Close()
	}
	status, err := reap(pid)
	if err != nil {
		return 0, err
	}
	// A process that still has a pipe open would keep the copies from
	// ending.
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return 0, fmt.Errorf("end what is left: %w", err)
	}
	for range pipes {
		select {
		case err := <-done:
			if err != nil {
				return 0, fmt.Errorf("pass on output: %w", err)
			}
		case <-time.After(10 * time.Second):
			return 0, fmt.Errorf("a process that cannot be killed holds the output")
		}
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// reap waits for pid, and for every orphan that process 1 inherits meanwhile.
func reap(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return status, fmt.Errorf("wait for the command: %w", err)
		}
		if got == pid {
			return status, nil
		}
	}
}
