// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var goNames = []string{"main.alpha", "main.beta", "main.main"}

//go:noinline
func here() uint64 {
	pcs := make([]uintptr, 1)
	runtime.Callers(1, pcs)
	return uint64(pcs[0])
}

func TestOwnProcess(t *testing.T) {
	var p Processes
	defer p.Close()
	pid := uint32(os.Getpid())
	p.Seen(pid)
	f := p.Frame(pid, here())
	exe, _ := os.Executable()
	if f.Sym != "seine/internal/sym.here" || f.Module != exe {
		t.Errorf("got %#v, want seine/internal/sym.here in %s", f, exe)
	}
	if f.Off == 0 || f.Off > 1000 {
		t.Errorf("here is %d bytes from its start", f.Off)
	}
}

func TestVDSO(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var addr uint64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, VDSO+"\n") {
			fmt.Sscanf(line, "%x-", &addr)
		}
	}
	if addr == 0 {
		t.Skip("the kernel gives no vdso")
	}
	var p Processes
	defer p.Close()
	want := Frame{Addr: addr + 16, Off: 16, Module: VDSO}
	if f := p.Frame(uint32(os.Getpid()), addr+16); f != want {
		t.Errorf("got %#v, want %#v", f, want)
	}
}

// Go binaries of all kinds, with symbols and without.
func TestGo(t *testing.T) {
	for _, flags := range [][]string{
		{},
		{"-ldflags=-s -w"},
		{"-buildmode=pie"},
		{"-buildmode=pie", "-ldflags=-s -w"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			exe := goBuild(t, "child", false, flags...)
			c := start(t, exec.Command(exe))
			var p Processes
			defer p.Close()
			p.Seen(c.pid())
			expect(t, &p, c, exe, goNames...)
		})
	}
}

// With C code linked in, Go's text does not start where .text starts.
func TestGoAndC(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no C compiler")
	}
	for _, flags := range [][]string{
		{"-ldflags=-s -w"},
		{"-buildmode=pie", "-ldflags=-s -w"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			exe := goBuild(t, "cgo", true, flags...)
			c := start(t, exec.Command(exe))
			var p Processes
			defer p.Close()
			expect(t, &p, c, exe, goNames...)
		})
	}
}

// A C++ program, and the C library it has mapped.
func TestC(t *testing.T) {
	for _, flags := range [][]string{{"-pie", "-fPIE"}, {"-no-pie"}, {"-static"}} {
		t.Run(flags[0], func(t *testing.T) {
			exe := cc(t, flags...)
			c := start(t, exec.Command(exe))
			var p Processes
			defer p.Close()
			p.Seen(c.pid())
			expect(t, &p, c, exe, "outer::Thing::call", "bare", "sized")
			bare, sized := c.pcs[1], c.pcs[2]
			for _, x := range []struct {
				addr uint64
				want string
			}{
				{bare + 3, "bare"}, // without a size: up to the next
				{sized + 1, "sized"},
				{sized + 2, ""}, // past the end
			} {
				if f := p.Frame(c.pid(), x.addr); f.Sym != x.want || f.Module != exe {
					t.Errorf("sized%+d is %q in %q, want %q in %q", int64(x.addr-sized), f.Sym, f.Module, x.want, exe)
				}
			}
			if flags[0] == "-pie" {
				f := p.Frame(c.pid(), c.pcs[3])
				if f.Sym != "connect" || f.Off != 0 || !strings.Contains(f.Module, "/libc") {
					t.Errorf("got %#v, want connect in libc", f)
				}
			}
		})
	}
}

func TestExited(t *testing.T) {
	exe := goBuild(t, "child", false)
	c := start(t, exec.Command(exe))
	var p Processes
	defer p.Close()
	p.Seen(c.pid())
	c.end()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", c.pid())); err == nil {
		t.Fatal("the child is still there")
	}
	expect(t, &p, c, exe, goNames...)

	// One that was never seen has no names, and does no harm.
	var q Processes
	defer q.Close()
	if f := q.Frame(c.pid(), c.pcs[0]); f != (Frame{Addr: c.pcs[0]}) {
		t.Errorf("got %#v of a process that was never seen", f)
	}
}

// The file is gone before the process was seen.
func TestDeleted(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "gone")
	data, err := os.ReadFile(goBuild(t, "child", false))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, data, 0o755); err != nil {
		t.Fatal(err)
	}
	c := start(t, exec.Command(exe))
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	var p Processes
	defer p.Close()
	expect(t, &p, c, exe, goNames...)

	// Without map_files it is found as the main program.
	pl := openPlace(fmt.Sprintf("/proc/%d", c.pid()))
	defer pl.close()
	f, err := pl.find(&mapping{start: 1, end: 2, name: exe, ino: 1, deleted: true})
	if err != nil {
		t.Fatalf("without map_files: %v", err)
	}
	f.close()
	if f, err := pl.find(&mapping{start: 1, end: 2, name: exe + ".so", ino: 1, deleted: true}); err == nil {
		f.close()
		t.Error("a deleted library was found as the main program")
	}
}

// A binary that only the process sees.
func TestMountNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, goBuild(t, "child", false))
	cmd.Env = append(os.Environ(), container+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	c := start(t, cmd)
	if _, err := os.Stat("/bin/inside"); err == nil {
		t.Fatal("/bin/inside is visible from here")
	}
	var p Processes
	defer p.Close()
	p.Seen(c.pid())

	// By its path in the process's root, when map_files is not allowed.
	pl := openPlace(fmt.Sprintf("/proc/%d", c.pid()))
	defer pl.close()
	f, err := pl.find(&mapping{start: 1, end: 2, name: "/bin/inside", ino: 1})
	if err != nil {
		t.Errorf("without map_files: %v", err)
	} else {
		f.close()
	}

	// Its perf map is in its own /tmp, under its own PID.
	var jit uint64
	fmt.Sscanf(c.ask("jit"), "%x", &jit)
	c.ask(fmt.Sprintf("write /tmp/perf-1.map %x 20 inside", jit))
	wait(t, &p, c.pid())
	if f := p.Frame(c.pid(), jit+4); f.Sym != "inside" || f.Module != JIT || f.Off != 4 {
		t.Errorf("got %#v, want inside + 4", f)
	}

	c.end()
	expect(t, &p, c, "/bin/inside", goNames...)
}

func TestExec(t *testing.T) {
	// Not PIE, so that both have the same addresses.
	first := goBuild(t, "child", false)
	second := goBuild(t, "child", false, "-gcflags=-N -l")
	c := start(t, exec.Command(first))
	var p Processes
	defer p.Close()
	expect(t, &p, c, first, goNames...)
	before := c.pcs
	c.pcs = c.addresses(c.ask("exec " + second + " again"))
	// Seen looks once per second.
	p.get(c.pid()).checked.Store(now() - int64(checkEvery))
	p.Seen(c.pid())
	expect(t, &p, c, second, goNames...)
	if before[0] == c.pcs[0] {
		t.Error("the two programs do not differ: the test shows nothing")
	}

	// What was sampled before is still known, where the new program has nothing.
	old := *p.get(c.pid()).prev.Load().maps.Load()
	var lib uint64
	for _, m := range old {
		if m.name == VDSO && findMapping(*p.get(c.pid()).maps.Load(), m.start) == nil {
			lib = m.start
		}
	}
	if lib != 0 {
		if f := p.Frame(c.pid(), lib); f.Module != VDSO {
			t.Errorf("got %#v, want [vdso] of the program before", f)
		}
	}
}

func TestJIT(t *testing.T) {
	exe := goBuild(t, "child", false)
	c := start(t, exec.Command(exe))
	var p Processes
	defer p.Close()
	p.Seen(c.pid())

	// Memory that is mapped after the process was seen, as dlopen does.
	var jit uint64
	fmt.Sscanf(c.ask("jit"), "%x", &jit)
	file := fmt.Sprintf("/tmp/perf-%d.map", c.pid())
	t.Cleanup(func() { os.Remove(file) })
	wait(t, &p, c.pid())
	if f := p.Frame(c.pid(), jit+16); f != (Frame{Addr: jit + 16, Off: 16, Module: Anon}) {
		t.Errorf("got %#v, want [anon] + 16", f)
	}

	c.ask(fmt.Sprintf("write %s garbage", file))
	c.ask(fmt.Sprintf("write %s %x 100 first name", file, jit))
	wait(t, &p, c.pid())
	if f := p.Frame(c.pid(), jit+16); f.Sym != "first name" || f.Module != JIT || f.Off != 16 {
		t.Errorf("got %#v, want first name + 16", f)
	}

	// The file grows, and is read again because an address is unknown.
	c.ask(fmt.Sprintf("write %s %x 100 second", file, jit+0x200))
	if f := p.Frame(c.pid(), jit+16); f.Sym != "first name" {
		t.Errorf("got %#v, want first name", f)
	}
	wait(t, &p, c.pid())
	if f := p.Frame(c.pid(), jit+0x210); f.Sym != "second" || f.Off != 16 {
		t.Errorf("got %#v, want second + 16", f)
	}

	// It is taken along before the process ends.
	var q Processes
	defer q.Close()
	q.Seen(c.pid())
	c.end()
	os.Remove(file)
	if f := q.Frame(c.pid(), jit); f.Sym != "first name" {
		t.Errorf("after the end: got %#v, want first name", f)
	}
}

// wait makes an unknown address count at once.
func wait(t *testing.T, p *Processes, pid uint32) {
	t.Helper()
	pr := p.get(pid)
	if pr == nil {
		t.Fatalf("process %d is not known", pid)
	}
	pr.again.Store(0)
}

// A broken stack must not make every address read /proc.
func TestPace(t *testing.T) {
	var p Processes
	defer p.Close()
	pid := uint32(os.Getpid())
	p.Seen(pid)
	const bad = 0x1000
	wait(t, &p, pid)
	p.Frame(pid, bad)
	again := p.get(pid).again.Load()
	if again <= now() {
		t.Fatalf("the next reading may start at once")
	}
	far := now() + int64(time.Hour)
	p.get(pid).again.Store(far)
	p.Frame(pid, bad)
	if got := p.get(pid).again.Load(); got != far {
		t.Errorf("read again before its time")
	}
	wait(t, &p, pid)
	p.Frame(pid, 8)       // no program has memory there
	p.Frame(pid, 1<<63|8) // nor there
	if got := p.get(pid).again.Load(); got != 0 {
		t.Errorf("read again for an address that cannot be")
	}
}

func TestConcurrent(t *testing.T) {
	exe := goBuild(t, "child", false, "-ldflags=-s -w")
	var p Processes
	defer p.Close()
	children := make([]*child, 5)
	for i := range children {
		children[i] = start(t, exec.Command(exe))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 200 {
				c := children[n%len(children)]
				p.Seen(c.pid())
				if f := p.Frame(c.pid(), c.pcs[0]); f.Sym != "main.alpha" {
					t.Errorf("got %#v, want main.alpha", f)
				}
				p.Frame(c.pid(), uint64(n)<<20)
			}
		})
	}
	wg.Wait()
	if n := len(p.files.known); n != 1 {
		t.Errorf("%d files are known, want the one that all share", n)
	}
}

func TestStack(t *testing.T) {
	// f is 16 bytes at 0x1000 and ends in a call, g follows; trampoline at 0x3000.
	var b builder
	b.add(function{addr: 0x1000}, 16, []byte("f"))
	b.add(function{addr: 0x1010}, 16, []byte("g"))
	b.add(function{addr: 0x3000}, 16, []byte("restore"))
	b.sort()
	tab := b.table()
	name := func(addr uint64) Frame {
		if i := tab.find(addr); i >= 0 {
			return Frame{Addr: addr, Sym: tab.sym(i), Off: addr - tab.addr[i], Module: "m"}
		}
		return Frame{Addr: addr}
	}
	got := stack(nil, []uint64{0x1010, 0x1010, 0x3000, 0x9000, 0, 0x1000}, name)
	want := []Frame{
		{0x1010, "g", 0, "m"},  // where it is
		{0x1010, "f", 16, "m"}, // where it returns to
		{0x3000, "restore", 0, "m"},
		{Addr: 0x9000},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("frame %d is %#v, want %#v", i, got[i], want[i])
		}
	}
}
