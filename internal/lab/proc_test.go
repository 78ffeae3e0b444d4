// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	Register("test-echo", func(c *Child) error {
		var n int
		if err := c.Arg(&n); err != nil {
			return err
		}
		for range n {
			if err := c.Report(c.Next()); err != nil {
				return err
			}
		}
		return nil
	})
	Register("test-fail", func(*Child) error {
		return fmt.Errorf("body: %w", unsupported("thing", unix.ENOSYS))
	})
	Register("test-panic", func(*Child) error { panic("on purpose") })
	Register("test-parent", func(c *Child) error {
		w, err := NewWorld(Options{})
		if err != nil {
			return err
		}
		p, err := w.Start("", "grandchild", "test-hang", nil)
		if err != nil {
			return err
		}
		if err := c.Report(p.PID); err != nil {
			return err
		}
		return c.Await("end")
	})
	Register("test-hang", func(c *Child) error { c.Next(); return nil })
	Register("test-threads", func(c *Child) error {
		done := make(chan struct{})
		for range 5 {
			go func() {
				runtime.LockOSThread() // a thread each, and most of them new
				done <- struct{}{}
				select {}
			}()
		}
		for range 5 {
			<-done
		}
		if err := c.Report([]int{unix.Getpid(), unix.Gettid()}); err != nil {
			return err
		}
		return c.Await("end")
	})
}

func TestProcTalk(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start("", "talker", "test-echo", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hello", "world"} {
		var got string
		if err := p.Call(word, &got); err != nil {
			t.Fatal(err)
		}
		check(t, "echo", got, word)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	var s string
	if err := p.Expect(&s); !errors.Is(err, errEnded) {
		t.Errorf("a report after the end: %q, %v", s, err)
	}
}

func TestProcIsWhatItSays(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start("", "a name of 15 by", "test-threads", nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	if err := p.Expect(&ids); err != nil {
		t.Fatal(err)
	}
	check(t, "pid", ids[0], p.PID)
	check(t, "tid of the body", ids[1], p.PID)
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	check(t, "namespace", ns, fmt.Sprintf("net:[%d]", w.Netns("")))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.PID))
	if len(tasks) < 6 {
		t.Errorf("%d threads", len(tasks))
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		check(t, task, string(b), "a name of 15 by\n")
	}
}

func TestProcErrors(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start("", "", "test-fail", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Wait()
	if !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.ENOSYS) {
		t.Errorf("got %v", err)
	}
	p, err = w.Start("", "", "test-panic", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("got %v, want the panic", err)
	}
	if _, err := w.Start("", "", "no such body", nil); err == nil {
		t.Error("a body that was not registered was started")
	}
	if _, err := w.Start("", "a name of 16 byt", "test-fail", nil); err == nil {
		t.Error("a comm too long was taken")
	}
}

// If the process of a world is killed, its children die too.
func TestChildrenDieWithTheirParent(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start("", "", "test-parent", nil)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := p.Expect(&pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p.Kill()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	if n != 1 {
		t.Errorf("the grandchild %d lives: %v", pid, err)
	}
}

func TestLaunchAsAnother(t *testing.T) {
	w := newWorld(t)
	p, err := w.Launch(Command{Comm: "nobody", Body: "test-hang", UID: 65534, GID: 65534})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Name:\tnobody\n", "Uid:\t65534\t65534", "Gid:\t65534\t65534"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in the child's status", want)
		}
	}
}

func TestLaunchInACgroup(t *testing.T) {
	root, err := cgroup2()
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp(root, "lab-test")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(dir)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := newWorld(t)
	p, err := w.Launch(Command{Body: "test-hang", Cgroup: f})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	check(t, "processes", strings.TrimSpace(string(b)), fmt.Sprint(p.PID))
	if err != nil {
		t.Error(err)
	}
	p.Kill()
}

// cgroup2 finds where cgroup2 is mounted.
func cgroup2() (string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.Join(err, errors.New("cgroup2 is not mounted"))
}

func TestCloseKills(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start("", "", "test-hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d after Close: %v", p.PID, err)
	}
}
