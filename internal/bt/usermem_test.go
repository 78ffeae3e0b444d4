// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/probe"
)

// userNumber is a variable for uaddr().
var userNumber uint32 = 4711

// pointerRegister has the first argument of a Go function.
var pointerRegister = map[string]string{"amd64": "ax", "arm64": "r0"}[runtime.GOARCH]

// TestUserMemory reads a variable of this program by its name.
func TestUserMemory(t *testing.T) {
	if userNumber != 4711 { // it is used
		t.Fatal(userNumber)
	}
	out, _ := live(t, script(`u:/proc/self/exe:seine/internal/bt.traced { $n = uaddr("seine/internal/bt.userNumber"); printf("%d %d\n", *$n, sizeof(*$n)); }`), Options{PIDs: self()}, func() { sink += traced(1) })
	if want := "4711 4\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	_, err := Compile(&Source{Name: "-e", Text: `u:/proc/self/exe:seine/internal/bt.traced { print(uaddr("seine/internal/bt.userNumbre")); }`}, Options{})
	if err == nil || !strings.Contains(err.Error(), "did you mean seine/internal/bt.userNumber?") {
		t.Errorf("uaddr() of no symbol: %v", err)
	}
	_, err = Compile(&Source{Name: "-e", Text: `begin { print(uaddr("x")); }`}, Options{})
	if err == nil || !strings.Contains(err.Error(), "uaddr() is for uprobe, uretprobe and usdt") {
		t.Errorf("uaddr() without a file: %v", err)
	}
}

// TestWriteUser writes what the argument of a function points to.
func TestWriteUser(t *testing.T) {
	needRoot(t)
	_, err := Compile(&Source{Name: "-e", Text: `begin { write_user(8, 1, 8); }`}, Options{})
	if err == nil || !strings.Contains(err.Error(), "refused without --unsafe") {
		t.Errorf("write_user() in safe mode: %v", err)
	}
	compile := func(o Options) (*Program, error) {
		o.Unsafe = true
		return Compile(&Source{Name: "-e", Text: fmt.Sprintf(`u:/proc/self/exe:seine/internal/bt.tracedAt { print(write_user(reg("%[1]s"), (int32)-7, 4)); print(write_user(reg("%[1]s") + 4, "new", 4)); print(write_user(8, 1, 8)); write_user(reg("%[1]s") + 8, 99, 8); }`, pointerRegister)}, o)
	}
	if _, err := compile(Options{}); err != nil && !running().writes() {
		if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "does not let programs write") {
			t.Errorf("a kernel that does not allow it: %v", err)
		}
		t.Skip(err)
	}
	rec := &userRecord{a: 1, name: [4]byte{'o', 'l', 'd'}, b: 2, next: &userRecord{}}
	out, _ := live(t, compile, Options{PIDs: self()}, func() { sink += int(tracedAt(rec)) })
	if want := "true\ntrue\nfalse\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if rec.a != -7 || string(rec.name[:]) != "new\x00" || rec.b != 99 {
		t.Errorf("the memory is %+v", rec)
	}
}

// libcOf is the C library of the shell, which is loaded anywhere.
func libcOf(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"} {
		if _, err := os.Stat(path); err == nil {
			if _, err := os.Stat("/bin/sh"); err == nil {
				return path
			}
		}
	}
	lack(t, "there is no C library with a shell here")
	return ""
}

// TestMovedFile has a variable and a stack of a library that is loaded at another
// address each time. What is right, the file itself says.
func TestMovedFile(t *testing.T) {
	libc := libcOf(t)
	f := must(elf.Open(libc))
	defer f.Close()
	note := must(f.Section(".note.gnu.build-id").Data())
	id := note[16 : 16+binary.LittleEndian.Uint32(note[4:])]
	var off uint64
	for _, s := range must(f.DynamicSymbols()) {
		if s.Name == "getpid" {
			off = must(fileOffset(libc, s.Value))
		}
	}
	out, _ := live(t, script(fmt.Sprintf(`u:%s:getpid /comm == "sh"/ { printf("%%s %%d\n", str(*uaddr("program_invocation_name")), sizeof(*uaddr("program_invocation_name"))); @[ustack(build_id, 1)] = count(); }`, libc)), Options{}, func() {
		for range 2 {
			cmd := exec.Command("/bin/sh", "-c", ":")
			cmd.Args[0] = "a-name-of-its-own"
			check(cmd.Run())
		}
	})
	want(t, out, "a-name-of-its-own 8\na-name-of-its-own 8\n", fmt.Sprintf("@[\n    %x 0x%x\n]: 2\n", id, off))
}

// TestUnwatch takes a watchpoint away after its first event.
func TestUnwatch(t *testing.T) {
	needRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	place := must(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	defer func() { check(unix.Munmap(place)) }()
	at := addressOf(place)
	var shown lineCount
	out, _ := live(t, func(o Options) (*Program, error) {
		p, err := Compile(&Source{Name: "-e", Text: fmt.Sprintf(`watchpoint:%#x:1:w { @n = count(); unwatch(%#x); printf("hit\n"); }`, at, at)}, o)
		return p, err
	}, Options{PIDs: self(), Out: &shown}, func() {
		place[0] = 1
		soon(func() bool { return shown.n.Load() > 0 })
		for range 5 {
			place[0]++
		}
	})
	want(t, out, "@n: 1\n")
}

// TestOverride makes a system call fail, or has the kernel say that it cannot.
func TestOverride(t *testing.T) {
	needRoot(t)
	name := map[string]string{"amd64": "__x64_sys_getpgid", "arm64": "__arm64_sys_getpgid"}[runtime.GOARCH]
	text := fmt.Sprintf(`k:%s /pid == %d/ { override(-%d); @ = count(); }`, name, os.Getpid(), unix.ENOENT)
	if _, err := Compile(&Source{Name: "-e", Text: text}, Options{}); err == nil || !strings.Contains(err.Error(), "without --unsafe") && !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("override() in safe mode: %v", err)
	}
	_, err := Compile(&Source{Name: "-e", Text: text}, Options{Unsafe: true})
	if errors.Is(err, probe.ErrNotSupported) && (strings.Contains(err.Error(), "CONFIG_BPF_KPROBE_OVERRIDE") || running().kprobes() != nil) {
		t.Skip(err)
	}
	var got error
	out, _ := live(t, func(o Options) (*Program, error) {
		o.Unsafe = true
		return Compile(&Source{Name: "-e", Text: text}, o)
	}, Options{}, func() { _, got = unix.Getpgid(0) })
	want(t, out, "@: 1\n")
	if !errors.Is(got, unix.ENOENT) {
		t.Errorf("the system call gave %v, want %v", got, unix.ENOENT)
	}
}

// addressOf is where memory is.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
