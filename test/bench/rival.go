// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// look is how often a rival is looked at until it is attached, and calm how long
// nothing may be added then.
const look, calm = 50 * time.Millisecond, 3 * time.Second

// rival is a tool of any suite as people run it, writing to a file. It tells
// nobody when it is attached: some print a heading before, some after, some when
// a second is over. So of all of them alike, ours too, it is the moment when the
// last link of a BPF program or the last perf event appeared among their
// descriptors.
type rival struct {
	child
	suite suite
	limit time.Duration // for that

	file string // its output
	rows int    // in it, at the end
	said errorText
}

func (r *rival) start() error {
	out, err := os.CreateTemp("", "rival-")
	if err != nil {
		return err
	}
	defer out.Close()
	r.file = out.Name()
	r.cmd = exec.Command(r.args[0], r.args[1:]...)
	r.cmd.Env = append(os.Environ(), "TERM=xterm")
	r.said.reset()
	r.cmd.Stdout, r.cmd.Stderr = out, &r.said
	began := time.Now()
	if err := r.cmd.Start(); err != nil {
		os.Remove(r.file)
		return err
	}
	if err := r.attached(began); err != nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		shown, _ := os.ReadFile(r.file)
		os.Remove(r.file)
		return fmt.Errorf("%w: %s", err, oneLine(errors.New(lastLine(r.said.String()+string(shown)))))
	}
	return nil
}

// attached waits until nothing has been added for a while.
func (r *rival) attached(began time.Time) error {
	n, since := 0, began
	for range time.Tick(look) {
		now, err := r.hooks()
		switch {
		case err != nil || r.ended():
			return errors.New("it ended")
		case now != n:
			n, since = now, time.Now()
		case n > 0 && time.Since(since) > calm:
			r.took = since.Sub(began)
			return nil
		case time.Since(began) > r.limit:
			return fmt.Errorf("not attached after %v", r.limit)
		}
	}
	return nil
}

// ended tells whether it has, though nobody has waited for it yet.
func (r *rival) ended() bool {
	text, err := os.ReadFile(r.proc("stat"))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return err != nil || bytes.HasPrefix(rest, []byte("Z"))
}

// hooks counts the descriptors by which programs are attached.
func (r *rival) hooks() (n int, err error) {
	dir := r.proc("fd")
	fds, err := os.ReadDir(dir)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && isHook(to) {
			n++
		}
	}
	return n, err
}

// isHook tells by the name of an anonymous file whether it attaches programs.
func isHook(name string) bool {
	name = strings.Trim(strings.TrimPrefix(name, "anon_inode:"), "[]")
	return strings.HasPrefix(name, "bpf_link") || name == "bpf-link" || name == "bpf-raw-tracepoint" || name == "perf_event"
}

// stop ends it and counts what it has shown, to the last that it wrote on its way
// out.
func (r *rival) stop() error {
	defer os.Remove(r.file)
	if err := r.child.stop(); err != nil {
		return err
	}
	text, err := os.ReadFile(r.file)
	r.rows = rowsOf(text)
	return err
}

// rowsOf counts the lines of a file that have a digit: those of headings have none.
func rowsOf(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if bytes.ContainsAny(line, "0123456789") {
			n++
		}
	}
	return n
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// errorText is what a program wrote to its standard error: the beginning of it.
type errorText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *errorText) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.Len() < 1<<16 {
		t.b.Write(b)
	}
	return len(b), nil
}

func (t *errorText) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (t *errorText) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Reset()
}
