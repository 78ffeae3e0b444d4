// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A subject is something with BPF programs that can run beside a load.
type subject interface {
	// start returns when its programs are attached.
	start() error
	// cost is the runs and the run time of its programs so far, by name.
	cost() (map[string]cost, error)
	stop() error
}

type cost struct{ runs, ns float64 }

func (c cost) minus(o cost) cost { return cost{c.runs - o.runs, c.ns - o.ns} }

// total is the sum of the costs of the programs whose name begins with one of
// the prefixes; of all if none is given.
func total(m map[string]cost, prefixes ...string) (sum cost) {
	for name, c := range m {
		ok := len(prefixes) == 0
		for _, p := range prefixes {
			ok = ok || strings.HasPrefix(name, p)
		}
		if ok {
			sum.runs += c.runs
			sum.ns += c.ns
		}
	}
	return sum
}

// during is the cost of a subject's programs while a load runs.
func during(s subject, load func() error) (map[string]cost, error) {
	before, err := s.cost()
	if err != nil {
		return nil, err
	}
	if err := load(); err != nil {
		return nil, err
	}
	after, err := s.cost()
	for name, c := range after {
		after[name] = c.minus(before[name])
	}
	return after, err
}

// child is a tool in a process of its own.
type child struct {
	args  []string
	ready string        // the start of the line that it prints when it is attached
	tty   bool          // its standard output is a terminal, and says when
	took  time.Duration // from exec to that line
	last  string        // the start of the last line that it prints; empty: it does not matter
	told  time.Duration // from the request to end to that line
	ended time.Duration // and to the exit

	cmd   *exec.Cmd
	said  chan error     // closed after the ready line, or after the output that came instead
	lasts chan time.Time // when the last line came
}

func (c *child) start() error {
	c.cmd = exec.Command(c.args[0], c.args[1:]...)
	c.said, c.lasts = make(chan error, 1), make(chan time.Time, 1)
	out, err := c.pipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return err
	}
	if f, ok := c.cmd.Stdout.(*os.File); ok {
		f.Close()
	}
	if f, ok := c.cmd.Stderr.(*os.File); ok && !c.tty {
		f.Close()
	}
	go c.listen(out, began)
	limit := time.After(2 * time.Minute)
	select {
	case err = <-c.said:
	case <-limit:
		err = errors.New("not ready after two minutes")
	}
	if err != nil {
		c.cmd.Process.Kill()
		c.cmd.Wait()
		return fmt.Errorf("%s: %w", strings.Join(c.args, " "), err)
	}
	return nil
}

// pipe connects the child and returns what to read its words from.
func (c *child) pipe() (*os.File, error) {
	if c.tty {
		// C programs buffer their output to a pipe.
		ours, theirs, err := terminal()
		if err != nil {
			return nil, err
		}
		c.cmd.Stdout = theirs
		return ours, nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.cmd.Stderr = null, w
	return r, nil
}

// listen reads to the end, so that the child never waits for us.
func (c *child) listen(from *os.File, began time.Time) {
	defer from.Close()
	var words []string
	ready := false
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadString('\n')
		switch {
		case ready && c.last != "" && strings.HasPrefix(line, c.last):
			c.lasts <- time.Now()
		case ready:
		case strings.HasPrefix(line, c.ready):
			ready = true
			c.took = time.Since(began)
			close(c.said)
		default:
			words = append(words, strings.TrimSpace(line))
		}
		if err != nil {
			if !ready {
				c.said <- errors.New(strings.Join(words, " "))
			}
			return
		}
	}
}

func terminal() (ours, theirs *os.File, err error) {
	if ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(ours.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return ours, theirs, err
}

func (c *child) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, name) }

// cost finds the programs by the descriptors that the child holds.
func (c *child) cost() (map[string]cost, error) {
	files, err := filepath.Glob(c.proc("fdinfo/*"))
	if err != nil {
		return nil, err
	}
	m := map[string]cost{}
	seen := map[ebpf.ProgramID]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // closed meanwhile
		}
		n, ok := field(text, "prog_id:")
		id := ebpf.ProgramID(n)
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		if err := addCost(m, id); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func addCost(m map[string]cost, id ebpf.ProgramID) error {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	st, err := p.Stats()
	if err != nil {
		return err
	}
	was := m[info.Name]
	m[info.Name] = cost{was.runs + float64(st.RunCount), was.ns + float64(st.Runtime)}
	return nil
}

// field is the number after a name at the start of a line.
func field(text []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		words := strings.Fields(string(rest))
		if len(words) == 0 {
			return 0, false
		}
		n, err := strconv.ParseUint(words[0], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// peak is its greatest resident memory, in bytes.
func (c *child) peak() (float64, error) { return c.memory("VmHWM:") }

// memory is a size in its status, in bytes.
func (c *child) memory(name string) (float64, error) {
	text, err := os.ReadFile(c.proc("status"))
	if err != nil {
		return 0, err
	}
	kb, ok := field(text, name)
	if !ok {
		return 0, errors.New("no " + name + " in " + c.proc("status"))
	}
	return float64(kb) * 1024, nil
}

// cpu is the processor time of all its threads, in nanoseconds.
func (c *child) cpu() (sum float64, err error) {
	threads, err := filepath.Glob(c.proc("task/*/schedstat"))
	for _, f := range threads {
		if text, err := os.ReadFile(f); err == nil {
			n, _ := field(text, "")
			sum += float64(n)
		}
	}
	return sum, err
}

// stop ends it as Ctrl-C does, and repeats that: bpftrace misses a signal that comes just
// before it waits for events. An exit by the signal is not an error; a crash, or having
// to kill it, is.
func (c *child) stop() error {
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		for range 20 {
			c.cmd.Process.Signal(syscall.SIGINT)
			select {
			case <-ended:
				return
			case <-time.After(3 * time.Second):
			}
		}
		c.cmd.Process.Kill()
	}()
	err := c.cmd.Wait()
	close(ended)
	c.ended = time.Since(began)
	if c.last != "" {
		select {
		case at := <-c.lasts:
			c.told = at.Sub(began)
		case <-time.After(time.Second):
			err = errors.Join(err, errors.New("no last line"))
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() != syscall.SIGINT {
		return fmt.Errorf("asked to end it got: %v", status.Signal())
	}
	return nil
}
