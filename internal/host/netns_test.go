// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namedNetns makes a network namespace and gives it a name, as ip-netns(8) does.
// A child makes it: a namespace belongs to a thread, and Go may run a goroutine
// on the thread that /proc/self describes.
func namedNetns(t *testing.T, path string) uint32 {
	t.Helper()
	needRoot(t)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNetnsInode$")
	child.Env = append(os.Environ(), "SEINE_NETNS=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer stdin.Close()
	source := fmt.Sprintf("/proc/%d/ns/net", child.Process.Pid)
	ino := inode(t, source)
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return uint32(ino)
}

func TestNetnsInode(t *testing.T) {
	if os.Getenv("SEINE_NETNS") != "" {
		io.Copy(io.Discard, os.Stdin) // until the parent has seen enough
		return
	}
	dir := t.TempDir()
	netnsDirs = []string{dir, dir + "/other"}
	t.Cleanup(func() { netnsDirs = []string{"/run/netns", "/var/run/netns"} })
	blue := namedNetns(t, filepath.Join(dir, "blue"))
	own := uint32(inode(t, "/proc/self/ns/net"))
	if own == blue {
		t.Fatalf("both namespaces have inode %d", own)
	}
	// `ip netns add 4194301` where there is no such process.
	numbered := namedNetns(t, filepath.Join(dir, "4194301"))
	for spec, want := range map[string]uint32{
		filepath.Join(dir, "blue"): blue,
		"blue":                     blue,
		"4194301":                  numbered,
		"/proc/self/ns/net":        own,
		fmt.Sprint(os.Getpid()):    own,
		fmt.Sprintf("/proc/%d/ns/net", os.Getpid()): own,
		fmt.Sprint(blue):              blue,
		fmt.Sprint(own):               own,
		fmt.Sprintf("net:[%d]", blue): blue,
		"4026531833":                  4026531833, // the first one since 6.18, below 0xF0000000
		"4026531840":                  4026531840,
		"4294967295":                  4294967295,
	} {
		got, err := NetnsInode(spec)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", spec, got, err, want)
		}
	}
}

func TestNetnsInodeErrors(t *testing.T) {
	dir := t.TempDir()
	netnsDirs = []string{dir}
	t.Cleanup(func() { netnsDirs = []string{"/run/netns", "/var/run/netns"} })
	if err := os.WriteFile(filepath.Join(dir, "stale"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo") // opening it would wait for a writer
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprint(cmd.Process.Pid)
	defer time.AfterFunc(10*time.Second, func() { panic("still opening " + fifo) }).Stop()
	for spec, want := range map[string]string{
		"":                          "give a path",
		dead:                        "there is no process " + dead,
		"/proc/" + dead + "/ns/net": "no such file",
		"0":                         "neither a process id nor",
		"5000000":                   "neither a process id nor",
		"4294967296":                "neither a process id nor",
		"/proc/self/ns/mnt":         "another kind",
		"/etc/passwd":               "not a namespace",
		"/":                         "not a namespace",
		fifo:                        "not a namespace",
		"stale":                     "not a namespace",
		"nosuch":                    "it has stale",
		"..":                        "no such name",
		"net:[12":                   "not of the form",
		"net:[x]":                   "not of the form",
		"net:[4294967296]":          "not of the form",
		"-5":                        "no such name",
	} {
		got, err := NetnsInode(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %d, %v, want an error with %q", spec, got, err, want)
		}
	}
}

// Names are found by inode. A file that is not a namespace has no name.
func TestNetnsNames(t *testing.T) {
	old := netnsDirs
	defer func() { netnsDirs = old }()
	dir := t.TempDir()
	netnsDirs = []string{dir, dir + "/none"}
	for _, name := range []string{"green", "blue"} {
		if err := os.Symlink("/proc/self/ns/net", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := NetnsInode("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := NetnsNames(); len(got) != 1 || got[own] != "blue" {
		t.Errorf("got %v, want blue for %d", got, own)
	}
}
