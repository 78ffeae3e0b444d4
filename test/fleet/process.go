// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A process is a program that runs beside this one and ends with it.
type process struct {
	name string
	log  string // file with its output
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start starts a program. If hostname is set, the program sees it as the name of the machine.
func start(dir, name, hostname, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), cmd: exec.Command(program, args...), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	// The kernel sends the death signal when the thread that started the process ends.
	host.OnThread(func() {
		err := func() error {
			if hostname != "" {
				if err := errors.Join(unix.Unshare(unix.CLONE_NEWUTS), unix.Sethostname([]byte(hostname))); err != nil {
					return err
				}
			}
			return p.cmd.Start()
		}()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// signal sends a signal to the process.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// kill ends the process as a crash would, and waits for its end.
func (p *process) kill() error {
	err := p.signal(unix.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// stop asks the process to end, and kills it if it does not. The process may be nil or have ended.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(unix.SIGCONT)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// running returns an error if the process has ended. The error has the last lines of its output.
func (p *process) running() error {
	select {
	case <-p.done:
		b, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %s", p.name, b[max(0, len(b)-2000):])
	default:
		return nil
	}
}
