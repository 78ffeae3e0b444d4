// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command says which child to start, and how.
type Command struct {
	Host string // where; "" is the first host
	Comm string // the child's name, at most 15 bytes; "" takes the body's
	Body string // what was given to Register
	Arg  any    // for [Child.Arg], as JSON
	// UID and GID, if not 0, are who the child runs as.
	UID, GID uint32
	// Cgroup, if set, is an open directory of cgroup2 to start the child in.
	Cgroup *os.File
}

// unnamed is the name of a child between exec and setting its own name. Before
// exec it has our name.
const unnamed = "exe"

// Start starts a child of the given comm in a host, and returns when it has
// its name and is about to run its body.
func (w *World) Start(host, comm, body string, arg any) (*Proc, error) {
	return w.Launch(Command{Host: host, Comm: comm, Body: body, Arg: arg})
}

// StartReady is Start for a body whose first report says that it is ready.
func (w *World) StartReady(host, comm, body string, arg any) (*Proc, error) {
	p, err := w.Start(host, comm, body, arg)
	if err != nil {
		return nil, err
	}
	var ready bool
	return p, p.Expect(&ready)
}

// Launch is Start with more options.
func (w *World) Launch(c Command) (*Proc, error) {
	if c.Comm == "" {
		c.Comm = c.Body[:min(len(c.Body), maxComm)]
	}
	if len(c.Comm) > maxComm {
		return nil, fmt.Errorf("lab: comm %q is longer than %d bytes", c.Comm, maxComm)
	}
	h, err := w.host(c.Host)
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(c.Arg)
	if err != nil {
		return nil, fmt.Errorf("lab: argument of %s: %w", c.Comm, err)
	}
	p, err := h.fork(c, w.timeout)
	if err != nil {
		return nil, fmt.Errorf("lab: start %s: %w", c.Comm, err)
	}
	if err := w.add(p); err != nil {
		p.Kill()
		return nil, fmt.Errorf("lab: start %s: %w", c.Comm, err)
	}
	if err := p.write(order{Comm: c.Comm, Thread: w.thread, Body: c.Body, Arg: arg}); err != nil {
		p.Kill()
		return nil, err
	}
	if _, err := p.next(); err != nil {
		p.Kill()
		return nil, fmt.Errorf("lab: start %s: %w", c.Comm, err)
	}
	return p, nil
}

// fork makes the process, on the host's thread.
func (h *host) fork(c Command, timeout time.Duration) (*Proc, error) {
	var pipes [3][2]*os.File // standard input, output, error: read and write ends
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		pipes[i] = [2]*os.File{r, w}
	}
	files := []*os.File{pipes[0][0], pipes[1][1], pipes[2][1]}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	attr := &os.ProcAttr{
		Env:   childEnviron(),
		Files: files,
		Sys:   &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true},
	}
	if c.UID != 0 || c.GID != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID}
	}
	if c.Cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(c.Cgroup.Fd())
	}
	p := &Proc{
		Comm: c.Comm, Host: h.name, Netns: h.inode,
		in: pipes[0][1], timeout: timeout,
		news: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	err := h.do(func() (err error) {
		p.process, err = os.StartProcess("/proc/self/"+unnamed, []string{c.Comm}, attr)
		return err
	})
	if err != nil {
		for _, f := range []*os.File{pipes[0][1], pipes[1][0], pipes[2][0]} {
			f.Close()
		}
		return nil, err
	}
	p.PID = p.process.Pid
	p.readers.Go(func() { p.read(pipes[1][0]) })
	p.readers.Go(func() { io.Copy(&p.stderr, pipes[2][0]); pipes[2][0].Close() })
	go p.reap()
	return p, nil
}

// childEnviron is our environment with two more settings. A child's counts are
// exact only if no signal interrupts a system call, and Go's scheduler preempts
// by signal: that is switched off.
func childEnviron() []string {
	debug := "asyncpreemptoff=1"
	if old := os.Getenv("GODEBUG"); old != "" {
		debug = old + "," + debug
	}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GODEBUG=") })
	return append(env, "GODEBUG="+debug, childEnv+"=1")
}
