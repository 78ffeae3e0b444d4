// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inChild runs the calling test again in a process of its own, which loses its
// privileges. There it returns true.
func inChild(t *testing.T) bool {
	t.Helper()
	const mark = "SEINE_HOST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	return false
}

func TestKeep(t *testing.T) {
	if !inChild(t) {
		return
	}
	if err := Keep(CapSyslog, CapBPF); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[Capability]bool{CapSyslog: true, CapBPF: true, CapSysAdmin: false, CapNetAdmin: false} {
		if HasCap(c) != want {
			t.Errorf("%v is held: %v, want %v", c, !want, want)
		}
	}
	out, err := exec.Command("/proc/self/exe", "-test.run=^TestKept$", "-test.v").CombinedOutput()
	if err != nil {
		t.Errorf("what it starts has more: %v: %s", err, out)
	}
	if err := Keep(CapSysAdmin); err != nil || HasCap(CapSysAdmin) || HasCap(CapBPF) {
		t.Errorf("got back what was given up, or kept the rest: %v", err)
	}
}

// TestKept is run by TestKeep, as a program that root starts.
func TestKept(t *testing.T) {
	if os.Getenv("SEINE_HOST_CHILD") != "TestKeep" {
		t.Skip("part of TestKeep")
	}
	if HasCap(CapSysAdmin) {
		t.Error("CAP_SYS_ADMIN has come back")
	}
}

func TestWithout(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	var inside bool
	if err := Without(func() { inside = HasCap(CapSysAdmin) }); err != nil {
		t.Fatal(err)
	}
	if inside || !HasCap(CapSysAdmin) {
		t.Errorf("CAP_SYS_ADMIN is held inside: %v, after: %v", inside, HasCap(CapSysAdmin))
	}
}

func TestLock(t *testing.T) {
	if !inChild(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "x")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Keep(); err != nil {
		t.Fatal(err)
	}
	if err := Lock(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("open"); err != nil {
		t.Errorf("writing to an open file: %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "open" {
		t.Errorf("reading: %q, %v", b, err)
	}
	if err := os.WriteFile(file, nil, 0o600); !errors.Is(err, os.ErrPermission) {
		t.Errorf("writing: got %v, want it refused", err)
	}
	if err := os.Remove(file); !errors.Is(err, os.ErrPermission) {
		t.Errorf("removing: got %v, want it refused", err)
	}
	if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("running a program: got %v, want it refused", err)
	}
	os.Exit(0) // the temporary directory cannot be removed from here
}

func TestRules(t *testing.T) {
	for abi, want := range map[int]uintptr{1: 8, 3: 8, 4: 16, 7: 16} {
		attr, size := rules(abi)
		if size != want {
			t.Errorf("version %d: %d bytes, want %d", abi, size, want)
		}
		if attr.Access_fs&(unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_READ_DIR) != 0 {
			t.Errorf("version %d: reading is refused", abi)
		}
		if (attr.Access_fs&unix.LANDLOCK_ACCESS_FS_TRUNCATE != 0) != (abi >= 3) {
			t.Errorf("version %d: rights %#x", abi, attr.Access_fs)
		}
	}
}

// TestNotGivenUp: the error of a build with cgo says how to build it.
func TestNotGivenUp(t *testing.T) {
	for err, hint := range map[error]bool{unix.ENOTSUP: true, unix.EPERM: false} {
		got := notGivenUp(err)
		if strings.Contains(got.Error(), "CGO_ENABLED=0") != hint || !errors.Is(got, err) {
			t.Errorf("of %v: got %q", err, got)
		}
	}
}

// TestConfine: only the named paths can be read, nothing can be written or executed, and
// connections to other ports are refused.
func TestConfine(t *testing.T) {
	const place = "SEINE_HOST_CONFINED" // made by the process that can remove it
	dir := os.Getenv(place)
	if dir == "" {
		t.Setenv(place, t.TempDir())
	}
	if !inChild(t) {
		return
	}
	for _, name := range []string{"yes", "no"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	listen := func() (net.Listener, uint16) {
		l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, uint16(l.Addr().(*net.TCPAddr).Port)
	}
	allowed, port := listen()
	defer allowed.Close()
	other, _ := listen()
	defer other.Close()
	if err := Keep(); err != nil {
		t.Fatal(err)
	}
	err := Confine([]string{filepath.Join(dir, "yes"), filepath.Join(dir, "nosuch")}, []uint16{port})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "yes/file")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	for name, err := range map[string]error{
		"reading a file beside it": errorOf(os.ReadFile(filepath.Join(dir, "no/file"))),
		"reading /etc/passwd":      errorOf(os.ReadFile("/etc/passwd")),
		"listing a directory":      errorOf(os.ReadDir(filepath.Join(dir, "no"))),
		"writing":                  os.WriteFile(filepath.Join(dir, "yes/new"), nil, 0o644),
		"running a program":        exec.Command("/bin/true").Run(),
	} {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := net.Dial("tcp", allowed.Addr().String())
	if err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil || !newEnough(unix.ByteSliceToString(u.Release[:]), 6, 7) {
		return // ports cannot be refused
	}
	if c, err := net.Dial("tcp", other.Addr().String()); err == nil {
		c.Close()
		t.Error("it can connect to another port")
	}
	if l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
		l.Close()
		t.Error("it can listen")
	}
}

func errorOf[T any](_ T, err error) error { return err }

// newEnough reports whether a kernel release is at least this new.
func newEnough(release string, major, minor int) bool {
	var a, b int
	fmt.Sscanf(release, "%d.%d", &a, &b)
	return a > major || a == major && b >= minor
}
