// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"seine/internal/lab"
)

// patience is the time limit of everything here.
const patience = 60 * time.Second

// A process is seine, running.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    text
	err    text
	ended  chan struct{}
	failed error
}

// text is the output of a process so far.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
	new chan struct{} // holds a token when something has come
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case x.new <- struct{}{}:
	default:
	}
	return x.buf.Write(b)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.String()
}

// start runs seine until it is ready. stdout, if not nil, replaces the buffer.
func start(t *testing.T, stdout *os.File, args ...string) *process {
	t.Helper()
	return startWith(t, func(c *exec.Cmd) {
		if stdout != nil {
			c.Stdout = stdout
		}
	}, args...)
}

// startWith is start with a change of the command.
func startWith(t *testing.T, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(seine, args...), ended: make(chan struct{})}
	p.out.new, p.err.new = make(chan struct{}, 1), make(chan struct{}, 1)
	p.cmd.Stderr = &p.err
	p.cmd.Stdout = &p.out
	change(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.failed = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	p.await(&p.err, `(?m)^seine: ready$`)
	return p
}

// await waits until x matches.
func (p *process) await(x *text, pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	for late := time.After(patience); !re.MatchString(x.String()); {
		select {
		case <-x.new:
		case <-p.ended:
			if re.MatchString(x.String()) {
				return
			}
			p.t.Fatalf("ended before it wrote %s: stdout %q, stderr %q", pattern, p.out.String(), p.err.String())
		case <-late:
			p.t.Fatalf("did not write %s: stdout %q, stderr %q", pattern, p.out.String(), p.err.String())
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code, 128 and more for signals.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.ended
		p.t.Fatalf("did not end: %s", p.err.String())
	}
	return exitCode(p.failed)
}

// wantEnd checks the exit code, and that stderr has no stack trace or internal
// error.
func (p *process) wantEnd(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("exit code %d, want %d; stderr %q", got, code, p.err.String())
	}
	for _, bad := range []string{"goroutine", "panic", "runtime error", "broken pipe"} {
		if strings.Contains(p.err.String(), bad) {
			p.t.Errorf("stderr speaks of %q: %q", bad, p.err.String())
		}
	}
}

func signalOf(e *exec.ExitError) syscall.Signal { return e.Sys().(syscall.WaitStatus).Signal() }

// held is the BPF objects of a process, by the kernel's ids.
type held struct {
	programs []ebpf.ProgramID
	links    []link.ID
	maps     []ebpf.MapID
}

// holds reads the BPF objects of p from /proc. There must be some, because
// otherwise nothing could be left behind.
func (p *process) holds() held {
	p.t.Helper()
	var h held
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, path := range infos {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(line, ":")
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if err != nil {
				continue
			}
			switch key {
			case "prog_id":
				h.programs = append(h.programs, ebpf.ProgramID(n))
			case "link_id":
				h.links = append(h.links, link.ID(n))
			case "map_id":
				h.maps = append(h.maps, ebpf.MapID(n))
			}
		}
	}
	if len(h.programs) == 0 || len(h.maps) == 0 {
		p.t.Fatalf("seine holds %+v: no programs or no maps", h)
	}
	for _, id := range h.programs {
		prog, err := ebpf.NewProgramFromID(id)
		if err != nil {
			p.t.Fatalf("program %d is not there while seine runs: %v", id, err)
		}
		prog.Close()
	}
	return h
}

// gone checks that nothing of h is left. The kernel frees after a grace period.
func (h held) gone(t *testing.T) {
	t.Helper()
	left := h.left()
	for deadline := time.Now().Add(patience); left != "" && time.Now().Before(deadline); left = h.left() {
		time.Sleep(5 * time.Millisecond)
	}
	if left != "" {
		t.Errorf("left behind:%s", left)
	}
}

func (h held) left() (s string) {
	for _, id := range h.programs {
		if p, err := ebpf.NewProgramFromID(id); !errors.Is(err, os.ErrNotExist) {
			s += fmt.Sprintf(" program %d (%v)", id, err)
			p.Close()
		}
	}
	for _, id := range h.maps {
		if m, err := ebpf.NewMapFromID(id); !errors.Is(err, os.ErrNotExist) {
			s += fmt.Sprintf(" map %d (%v)", id, err)
			m.Close()
		}
	}
	for _, id := range h.links {
		if l, err := link.NewFromID(id); !errors.Is(err, os.ErrNotExist) {
			s += fmt.Sprintf(" link %d (%v)", id, err)
			if err == nil {
				l.Close()
			}
		}
	}
	return s
}

// twoHosts is a world of a client and a server, and the flags that limit a tool
// to it.
func twoHosts(t *testing.T) (w *lab.World, only []string) {
	t.Helper()
	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	for _, h := range w.Hosts() {
		only = append(only, fmt.Sprintf("--netns=%d", w.Netns(h)))
	}
	return w, only
}

// sessions makes sessions and waits until they and their last segments have
// ended.
func sessions(t *testing.T, w *lab.World, s lab.Sessions) {
	t.Helper()
	tcp, err := lab.StartTCP(w, s)
	if err == nil {
		_, err = tcp.Run()
	}
	if err == nil {
		err = w.Quiet()
	}
	if err != nil {
		t.Fatal(err)
	}
}
