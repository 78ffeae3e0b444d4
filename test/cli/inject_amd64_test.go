// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An injected is a process that is stopped. Its threads make system calls for a test.
type injected struct {
	t     *testing.T
	exe   uint64 // address of a syscall instruction
	tasks []int
}

// A systemCall is a system call. Bytes among its arguments are passed by their address.
type systemCall struct {
	number uint64
	args   []any
}

// inject stops all threads of a process, lets test use them, and lets them go on.
func inject(t *testing.T, pid int, use func(p *injected)) {
	t.Helper()
	runtime.LockOSThread() // only the thread that attached to a task can control it
	defer runtime.UnlockOSThread()
	p := &injected{t: t, exe: syscallAddress(t, pid)}
	defer func() {
		for _, task := range p.tasks {
			if err := unix.PtraceDetach(task); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Error(err)
			}
		}
	}()
	known := map[int]bool{}
	for found := true; found; { // a thread that still runs may have started another one
		found = false
		dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			task, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || known[task] {
				continue
			}
			known[task], found = true, true
			if err := unix.PtraceAttach(task); errors.Is(err, unix.ESRCH) {
				continue // it has ended
			} else if err != nil {
				t.Fatalf("task %d: %v", task, err)
			}
			p.tasks = append(p.tasks, task)
			p.wait(task, unix.SIGSTOP)
		}
	}
	use(p)
}

// wait waits until a task stops with a signal.
func (p *injected) wait(task int, want unix.Signal) {
	p.t.Helper()
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(task, &status, unix.WALL, nil); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || !status.Stopped() {
			p.t.Fatalf("task %d: %v, status %#x", task, err, status)
		}
		if status.StopSignal() == syscall.Signal(want) {
			return
		}
		// One of its own signals came first. It is passed on.
		if err := unix.PtraceCont(task, int(status.StopSignal())); err != nil {
			p.t.Fatal(err)
		}
	}
}

// syscallAddress finds a syscall instruction in the program of a process.
func syscallAddress(t *testing.T, pid int) uint64 {
	t.Helper()
	f, err := elf.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	if text == nil || f.Type != elf.ET_EXEC {
		t.Fatal("the program has no .text at a fixed address")
	}
	b, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte{0x0f, 0x05})
	if at < 0 {
		t.Fatal("the program has no syscall instruction")
	}
	return text.Addr + uint64(at)
}

// call makes a system call in a task.
func (p *injected) call(task int, c systemCall) (result int, err error) {
	p.t.Helper()
	must := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	var saved unix.PtraceRegs
	must(unix.PtraceGetRegs(task, &saved))
	regs := saved
	regs.Rip, regs.Rax, regs.Orig_rax = p.exe, c.number, ^uint64(0) // no restart of the call that it was in
	into := []*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx, &regs.R10, &regs.R8, &regs.R9}
	stack := make([]byte, 512) // bytes of arguments, for the time of the call
	_, err = unix.PtracePeekData(task, uintptr(regs.Rsp), stack)
	must(err)
	now := bytes.Clone(stack)
	end := 0
	for i, arg := range c.args {
		switch arg := arg.(type) {
		case int:
			*into[i] = uint64(arg)
		case []byte:
			*into[i] = regs.Rsp + uint64(end)
			if end += copy(now[end:], arg); end == len(now) {
				p.t.Fatal("the arguments are too long")
			}
		}
	}
	_, err = unix.PtracePokeData(task, uintptr(regs.Rsp), now)
	must(err)
	must(unix.PtraceSetRegs(task, &regs))
	must(unix.PtraceSingleStep(task))
	p.wait(task, unix.SIGTRAP)
	must(unix.PtraceGetRegs(task, &regs))
	_, err = unix.PtracePokeData(task, uintptr(saved.Rsp), stack)
	must(err)
	must(unix.PtraceSetRegs(task, &saved))
	if n := int64(regs.Rax); n < 0 && n > -4096 {
		return -1, unix.Errno(-n)
	}
	return int(regs.Rax), nil
}

// with makes a call that returns a descriptor, uses it and closes it.
func (p *injected) with(task int, c systemCall, use func(fd int) error) error {
	fd, err := p.call(task, c)
	if err != nil {
		return err
	}
	if use != nil {
		err = use(fd)
	}
	_, failed := p.call(task, systemCall{unix.SYS_CLOSE, []any{fd}})
	return errors.Join(err, failed)
}

// open is a call that opens a file.
func open(path string, flags int) systemCall {
	return systemCall{unix.SYS_OPENAT, []any{unix.AT_FDCWD, append([]byte(path), 0), flags, 0o600}}
}

// confined checks by calls of every thread of the front what Landlock allows it: it reads --dir and no
// other file, writes and runs none, and connects only to the port of the collector, where nobody listens.
func confined(t *testing.T, front int, dir string, port int) {
	t.Helper()
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		t.Log("this kernel has no Landlock")
		return
	} else if errno != 0 {
		t.Fatal(errno)
	}
	outside := t.TempDir()
	in, out := filepath.Join(dir, "file"), filepath.Join(outside, "file")
	for _, path := range []string{in, out} {
		if err := os.WriteFile(path, []byte("not a program"), 0o755); err != nil { // to run it would be ENOEXEC
			t.Fatal(err)
		}
		defer os.Remove(path)
	}
	inject(t, front, func(p *injected) {
		if len(p.tasks) < 2 {
			t.Errorf("the front has %d threads: the check is wrong", len(p.tasks))
		}
		for _, task := range p.tasks {
			want := func(what string, want, got error) {
				if !errors.Is(got, want) {
					t.Errorf("%s, in thread %d of the front: %v, want %v", what, task, got, want)
				}
			}
			want("read --dir", nil, p.with(task, open(in, unix.O_RDONLY), nil))
			want("list --dir", nil, p.with(task, open(dir, unix.O_RDONLY|unix.O_DIRECTORY), nil))
			want("read elsewhere", unix.EACCES, p.with(task, open(out, unix.O_RDONLY), nil))
			want("list elsewhere", unix.EACCES, p.with(task, open(outside, unix.O_RDONLY|unix.O_DIRECTORY), nil))
			want("read about a process", unix.EACCES, p.with(task, open("/proc/1/status", unix.O_RDONLY), nil))
			want("write in --dir", unix.EACCES, p.with(task, open(in, unix.O_WRONLY), nil))
			want("a new file in --dir", unix.EACCES, p.with(task, open(filepath.Join(dir, "new"), unix.O_WRONLY|unix.O_CREAT), nil))
			want("write elsewhere", unix.EACCES, p.with(task, open(out, unix.O_WRONLY), nil))
			_, err := p.call(task, systemCall{unix.SYS_EXECVE, []any{append([]byte(in), 0), 0, 0}})
			want("run", unix.EACCES, err)
			if abi < 4 {
				continue // TCP since 6.7
			}
			for to, err := range map[int]error{port: unix.ECONNREFUSED, port + 1: unix.EACCES} {
				want(fmt.Sprintf("connect to port %d, collector at %d", to, port), err, p.with(task, systemCall{unix.SYS_SOCKET, []any{unix.AF_INET, unix.SOCK_STREAM, 0}}, func(fd int) error {
					address := []byte{unix.AF_INET, 0, byte(to >> 8), byte(to), 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
					_, err := p.call(task, systemCall{unix.SYS_CONNECT, []any{fd, address, len(address)}})
					return err
				}))
			}
		}
	})
}
