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

	"seine/internal/lab"
)

// calm is how long a rival must add nothing until it counts as attached.
const calm = 3 * time.Second

// look is the interval of the checks until then. The rival does not notice
// them.
func look() time.Duration {
	if lab.Emulated() {
		return 10 * time.Millisecond
	}
	return 3 * time.Millisecond
}

// rival is a tool of any suite as people run it, writing to a file. It does not
// report when it is attached: some print a heading before, some after, some a
// second later. So for all of them, ours included, it is the time when the last
// BPF link or perf event appeared among the descriptors.
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
	found := attachment{since: began}
	for range time.Tick(look()) {
		fds, err := os.ReadDir(r.proc("fd"))
		if err != nil || r.ended() {
			return errors.New("it ended")
		}
		found.look(len(fds), func() int { return r.hooks(fds) })
		switch {
		case found.hooks > 0 && time.Since(found.since) > calm:
			r.took = found.since.Sub(began)
			return nil
		case time.Since(began) > r.limit:
			return fmt.Errorf("not attached after %v", r.limit)
		}
	}
	return nil
}

// An attachment is what was found among the descriptors of a rival so far.
type attachment struct {
	hooks int       // by which programs are attached
	files int       // all descriptors
	since time.Time // of the last new hook
}

// look counts the hooks. That takes long, so it is left out while there are as many descriptors as before. A rival may close as
// many as it opens, so the first hook is looked for in any case.
func (a *attachment) look(files int, hooks func() int) {
	if a.hooks > 0 && files == a.files {
		return
	}
	a.files = files
	if now := hooks(); now > a.hooks {
		a.hooks, a.since = now, time.Now()
	}
}

// ended reports whether it has ended, even if nobody has waited for it yet.
func (r *rival) ended() bool {
	text, err := os.ReadFile(r.proc("stat"))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return err != nil || bytes.HasPrefix(rest, []byte("Z"))
}

// hooks counts the descriptors by which programs are attached.
func (r *rival) hooks(fds []os.DirEntry) (n int) {
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(r.proc("fd"), fd.Name())); err == nil && isHook(to) {
			n++
		}
	}
	return n
}

// isHook reports whether an anonymous file attaches programs, by its name.
func isHook(name string) bool {
	name = strings.Trim(strings.TrimPrefix(name, "anon_inode:"), "[]")
	return strings.HasPrefix(name, "bpf_link") || name == "bpf-link" || name == "bpf-raw-tracepoint" || name == "perf_event"
}

// stop ends it and counts the rows of its whole output.
func (r *rival) stop() error {
	defer os.Remove(r.file)
	if err := r.child.stop(); err != nil {
		return err
	}
	text, err := os.ReadFile(r.file)
	r.rows = rowsOf(text)
	return err
}

// rowsOf counts the lines of a file that have a digit. Headings have none, except
// bpftrace's first line.
func rowsOf(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if bytes.ContainsAny(line, "0123456789") && !bytes.HasPrefix(line, []byte("Attaching ")) {
			n++
		}
	}
	return n
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// errorText is the beginning of a program's standard error.
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
