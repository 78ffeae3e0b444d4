// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestWatch counts the writes of a program to a place in its memory.
func TestWatch(t *testing.T) {
	needRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is one of amd64")
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bp_type: watchW, Ext1: 0x402008, Ext2: 4, Sample: 1}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Skipf("this machine has no breakpoints: %v", err)
	}
	unix.Close(fd)
	cmd := exec.Command(usdtProgram(t), "wait")
	in := must(cmd.StdinPipe())
	check(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pid := uint32(cmd.Process.Pid)
	text := fmt.Sprintf(`watchpoint:%#x:4:w { @n = count(); @last = max(*uptr((int32 *)%#x)); @[probe, pid == %d] = count(); } asyncwatchpoint:%#x:1:x { @x = count(); }`, usdtCounter, usdtCounter, pid, usdtTick)
	out, _ := live(t, script(text), Options{PIDs: []uint32{pid}}, func() {
		_, _ = io.WriteString(in, "x")
		_ = in.Close()
		_, _ = cmd.Process.Wait()
	})
	want(t, out, fmt.Sprintf("@n: %d\n", usdtRounds), fmt.Sprintf("@x: %d\n", usdtRounds), fmt.Sprintf("@[watchpoint:%#x:4:w, true]: %d\n", usdtCounter, usdtRounds), fmt.Sprintf("@last: %d\n", usdtRounds-1))
}

// TestSelf has a clause for a signal that comes to seine itself.
func TestSelf(t *testing.T) {
	signal.Ignore(unix.SIGUSR2) // it would end this process before seine listens
	defer signal.Reset(unix.SIGUSR2)
	var shown lineCount
	out, _ := live(t, func(o Options) (*Program, error) {
		shown.n.Store(0)
		return Compile(&Source{Name: "-e", Text: `self:signal:SIGUSR2 { printf("%s\n", probe); exit(); }`}, o)
	}, Options{Out: &shown}, func() {
		soon(func() bool { // it may not be listening yet
			check(unix.Kill(os.Getpid(), unix.SIGUSR2))
			return shown.n.Load() > 0
		})
	})
	want(t, out, "self:signal:SIGUSR2\n")
}

// TestIter goes over tasks and open files, and finds its own.
func TestIter(t *testing.T) {
	needRoot(t)
	if err := running().fentry(); err != nil {
		t.Skip(err) // iterators are programs of the same type
	}
	threads := func() map[string]bool {
		all := map[string]bool{}
		for _, e := range must(os.ReadDir("/proc/self/task")) {
			all[e.Name()] = true
		}
		return all
	}
	before := threads()
	out, _ := live(t, script(`iter:task { if (ctx.task->tgid == $1) { printf("%d\n", ctx.task->pid); } @all = count(); @null = max(ctx.task == 0); }`, fmt.Sprint(os.Getpid())), Options{}, nil)
	after := threads()
	for tid := range before {
		if after[tid] && !strings.Contains("\n"+out, "\n"+tid+"\n") {
			t.Errorf("thread %s is missing in\n%s", tid, out)
		}
	}
	want(t, out, "@null: 0\n")
	file := must(os.Create(filepath.Join(t.TempDir(), "open")))
	defer file.Close()
	var st unix.Stat_t
	check(unix.Fstat(int(file.Fd()), &st))
	out, _ = live(t, script(`iter:task_file /ctx.task->tgid == $1 && ctx.fd == $2/ { printf("%d\n", ctx.file->f_inode->i_ino); }`, fmt.Sprint(os.Getpid()), fmt.Sprint(file.Fd())), Options{}, nil)
	if ino := strconv.FormatUint(st.Ino, 10); !strings.Contains("\n"+out, "\n"+ino+"\n") {
		t.Errorf("got %q, want inode %s", out, ino)
	}
	_, err := Compile(&Source{Name: "-e", Text: "iter:tsk { }"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "no iterator tsk: did you mean task?") {
		t.Errorf("got %v", err)
	}
	var list strings.Builder
	check(List(&list, "iter:task*", true))
	want(t, list.String(), "iter:task\n", "    struct task_struct * task\n")
}
