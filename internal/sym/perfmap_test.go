// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const perfMap = `7f0000001000 100 LazyCompile:~connect net.js:1042
0x7f0000002000 0x100 Ljava/lang/String;::equals
7F0000003000 100 old
7f0000003080 100 newer, overlaps old
7f0000004000 1000 large, older
7f0000004800 10 small, newer
7f0000005800 10 small, older
7f0000005000 1000 large, newer
7f0000006000 10 first
7f0000006000 20 second

garbage
7f0000007000
7f0000007000 10
7f0000007000 0 empty
7f0000007000 zz bad
fffffffffffffff0 100 wraps around
7f0000008000 ffffffffffffffff huge
12345678901234567 10 too long
7f0000009000 10 _ZN5outer5inner4funcEi
7f000000a000 10 no newline`

func TestPerfMap(t *testing.T) {
	tab := parsePerfMap(strings.NewReader(perfMap))
	check(t, tab)
	for addr, want := range map[uint64]string{
		0x7f0000001000:     "LazyCompile:~connect net.js:1042",
		0x7f00000010ff:     "LazyCompile:~connect net.js:1042",
		0x7f0000001100:     "",
		0x7f0000002001:     "Ljava/lang/String;::equals",
		0x7f0000003000:     "", // overwritten
		0x7f0000003080:     "newer, overlaps old",
		0x7f0000004000:     "",
		0x7f0000004808:     "small, newer",
		0x7f0000005808:     "large, newer",
		0x7f0000006010:     "second",
		0x7f0000007000:     "",
		0xfffffffffffffff8: "",
		0x7f000000a000:     "no newline",
	} {
		sym := ""
		if i := tab.find(addr); i >= 0 {
			sym = tab.sym(i)
		}
		if sym != want {
			t.Errorf("%#x is %q, want %q", addr, sym, want)
		}
	}
}

// One whose size makes no sense hides what was written before it, and no more.
func TestPerfMapHuge(t *testing.T) {
	tab := parsePerfMap(strings.NewReader("1000 10 a\n2000 ffffffffffffffff huge\n3000 10 b\n"))
	if i := tab.find(0x1000); i < 0 || tab.sym(i) != "a" {
		t.Errorf("a is not found")
	}
	if i := tab.find(0x3000); i < 0 || tab.sym(i) != "b" {
		t.Errorf("b, written later, is not found")
	}
}

// Only the end of a large file is read.
func TestPerfMapLarge(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "map"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("1000 10 early\n")
	const size = maxPerfMap + 4096
	end := "\n2000 10 late\n"
	if _, err := f.WriteAt([]byte(end), size-int64(len(end))); err != nil { // a hole before it
		t.Fatal(err)
	}
	tab := readPerfMap(f, size)
	if tab.find(0x1000) >= 0 {
		t.Errorf("early was read")
	}
	if tab.find(0x2000) < 0 {
		t.Errorf("late was not read")
	}
}

// Files in /tmp are anyone's.
func TestPerfMapOwner(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	me := uint32(os.Geteuid())
	status := func(uid string) {
		text := "Name:\tx\nUid:\t" + uid + "\t" + uid + "\t0\t0\nNSpid:\t4711\t17\t3\n"
		if err := os.WriteFile(dir+"/status", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pl := place{dir: dir, root: root, paths: root}
	name := dir + "/tmp/perf-3.map"
	look := func() error {
		f, err := findPerfMap(pl)
		if err == nil {
			f.close()
		}
		return err
	}
	status("12345")
	if err := look(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file gives %v", err)
	}
	if err := os.WriteFile(name, []byte("1000 10 a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := look(); me != 0 && err == nil {
		t.Errorf("a file of user %d was taken for a process of user 12345", me)
	} else if me == 0 && err != nil {
		t.Errorf("a file of root gives %v", err)
	}
	if me == 0 {
		if err := os.Chown(name, 12346, 0); err != nil {
			t.Fatal(err)
		}
		if err := look(); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a file of user 12346, for a process of user 12345, gives %v", err)
		}
		if err := os.Chown(name, 12345, 0); err != nil {
			t.Fatal(err)
		}
		if err := look(); err != nil {
			t.Errorf("a file of user 12345 gives %v", err)
		}
	}

	// A link, and a pipe, which would make open wait.
	os.Rename(name, dir+"/other")
	if err := os.Symlink("../other", name); err != nil {
		t.Fatal(err)
	}
	if err := look(); err == nil {
		t.Errorf("a link was followed")
	}
	os.Remove(name)
	if err := syscall.Mkfifo(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := look(); !errors.Is(err, errNotRegular) {
		t.Errorf("a pipe gives %v", err)
	}

	// A link in the way leads to the process's own root, not to ours.
	os.RemoveAll(dir + "/tmp")
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/perf-3.map", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/tmp"); err != nil {
		t.Fatal(err)
	}
	if look() == nil {
		t.Errorf("a link out of the root was followed")
	}
}

func FuzzPerfMap(f *testing.F) {
	f.Add([]byte(perfMap))
	f.Add([]byte("0 ffffffffffffffff a\nffffffffffffffff 1 b\nfffffffffffffffe 1 c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tab := parsePerfMap(bytes.NewReader(data))
		check(t, tab)
		for i := 1; i < len(tab.addr); i++ {
			if tab.addr[i-1]+uint64(tab.size[i-1]) > tab.addr[i] {
				t.Fatalf("functions %d and %d overlap", i-1, i)
			}
		}
	})
}
