// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
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

// Proc is the parent's side of a child.
type Proc struct {
	PID   int
	Comm  string
	Host  string
	Netns uint32 // inode of the child's network namespace

	process *os.Process
	in      *os.File
	timeout time.Duration
	stderr  tail
	readers sync.WaitGroup

	news chan struct{} // holds one token when reports or gone changed
	gone chan struct{} // closed when the child has been waited for

	mu      sync.Mutex
	reports []json.RawMessage
	end     *ending
	err     error // why the child failed, once gone is closed
}

// Start starts a child of the given comm in a host, and returns when it has
// its name and is about to run its body.
func (w *World) Start(host, comm, body string, arg any) (*Proc, error) {
	return w.Launch(Command{Host: host, Comm: comm, Body: body, Arg: arg})
}

// Launch is Start with more to choose.
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
	w.mu.Lock()
	w.procs = append(w.procs, p)
	w.mu.Unlock()
	if err := p.write(order{Comm: c.Comm, Body: c.Body, Arg: arg}); err != nil {
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
		p.process, err = os.StartProcess("/proc/self/exe", []string{c.Comm}, attr)
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

// read collects what the child says until it closes the pipe.
func (p *Proc) read(f *os.File) {
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			m.End = &ending{Error: fmt.Sprintf("says %q: %v", line, err)}
		}
		p.mu.Lock()
		if m.End != nil {
			p.end = m.End
		} else {
			p.reports = append(p.reports, m.Report)
		}
		p.mu.Unlock()
		p.notify()
	}
}

// reap waits for the child's end and says how it ended.
func (p *Proc) reap() {
	p.readers.Wait()
	state, err := p.process.Wait()
	p.mu.Lock()
	switch {
	case err != nil:
		p.err = err
	case p.end != nil && p.end.Error != "":
		p.err = p.end.err()
	case p.end == nil || !state.Success():
		p.err = fmt.Errorf("ended before its body did: %v%s", state, p.stderr.quote())
	}
	p.mu.Unlock()
	p.in.Close()
	close(p.gone)
	p.notify()
}

func (p *Proc) notify() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// errEnded says that a child returned without an error and without the report
// that was waited for.
var errEnded = errors.New("ended without a report")

// next waits for a report.
func (p *Proc) next() (json.RawMessage, error) {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	for {
		var gone bool
		select {
		case <-p.gone:
			gone = true
		default:
		}
		p.mu.Lock()
		if len(p.reports) > 0 {
			r := p.reports[0]
			p.reports = p.reports[1:]
			p.mu.Unlock()
			return r, nil
		}
		err := p.err
		p.mu.Unlock()
		if gone && err == nil {
			err = errEnded
		}
		if gone {
			return nil, err
		}
		select {
		case <-p.news:
		case <-p.gone:
		case <-late.C:
			return nil, fmt.Errorf("no report within %v", p.timeout)
		}
	}
}

// Expect waits for the child's next report and decodes it into v. If the child
// has ended instead, the error is its own. Reports keep their order.
func (p *Proc) Expect(v any) error {
	r, err := p.next()
	if err != nil {
		return fmt.Errorf("lab: %s (pid %d): %w", p.Comm, p.PID, err)
	}
	if err := json.Unmarshal(r, v); err != nil {
		return fmt.Errorf("lab: report of %s: %w", p.Comm, err)
	}
	return nil
}

// Tell says a word to the child, such as "go".
func (p *Proc) Tell(word string) error { return p.write(word) }

// Call is Tell, then Expect.
func (p *Proc) Call(word string, v any) error {
	if err := p.Tell(word); err != nil {
		return err
	}
	return p.Expect(v)
}

func (p *Proc) write(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(b); err != nil {
		return fmt.Errorf("lab: tell %s: %w", p.Comm, err)
	}
	return nil
}

// Wait waits until the child has ended and been reaped, and returns its error.
func (p *Proc) Wait() error {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
		return fmt.Errorf("lab: %s (pid %d): still running after %v", p.Comm, p.PID, p.timeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("lab: %s (pid %d): %w", p.Comm, p.PID, p.err)
	}
	return nil
}

// Kill ends the child by SIGKILL and waits for it. It may have ended before.
func (p *Proc) Kill() {
	p.process.Kill()
	<-p.gone
}

// tail keeps the last part of what a child wrote to standard error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - most; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// quote gives the text for an error message.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.buf)); s != "" {
		return "\n" + s
	}
	return ""
}
