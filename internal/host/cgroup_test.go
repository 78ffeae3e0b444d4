// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeCgroup makes a cgroup directly below the root and returns its directory.
func makeCgroup(t *testing.T, name string) string {
	t.Helper()
	needRoot(t)
	root, err := Cgroup2()
	if err != nil {
		t.Fatal(err)
	}
	return makeDir(t, filepath.Join(root, fmt.Sprintf("seine-host-%s-%d", name, os.Getpid())))
}

// makeDir makes a directory and, at the end, removes it with what is below it.
func makeDir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return dir
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestCgroupID(t *testing.T) {
	outer := makeCgroup(t, "id")
	inner := makeDir(t, filepath.Join(outer, "a b"))
	root, _ := Cgroup2()
	rel := strings.TrimPrefix(inner, root)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(inner, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, same string
		level      int
	}{
		{"/", root, 0},
		{root, root, 0},
		{root + "/", root, 0},
		{outer, outer, 1},
		{inner, inner, 2},
		{rel, inner, 2},
		{rel + "/", inner, 2},
		{rel[1:], inner, 2},
		{"/.." + rel, inner, 2},
		{link, inner, 2},
	} {
		id, level, err := CgroupID(test.path)
		if err != nil {
			t.Error(err)
			continue
		}
		if want := inode(t, test.same); id != want || level != test.level {
			t.Errorf("%s: got id %d level %d, want id %d level %d", test.path, id, level, want, test.level)
		}
	}
}

func TestCgroupIDErrors(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"":                    "empty",
		"/no/such/cgroup":     "not found",
		t.TempDir():           "not of a cgroup2",
		file:                  "not a directory",
		"/cgroup.procs":       "not a directory",
		"/../../../etc/shade": "not found",
	}
	for _, v1 := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(v1); err == nil {
			tests[v1] = "version 1"
		}
	}
	for path, want := range tests {
		id, _, err := CgroupID(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %d, %v, want an error with %q", path, id, err, want)
		}
	}
	if _, _, err := CgroupID("/no/such/cgroup"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// TestCgroupNamespace runs itself inside of a cgroup namespace whose root is at
// level 2, and asks there for the level of that root and of a cgroup below it.
func TestCgroupNamespace(t *testing.T) {
	switch os.Getenv("SEINE_CGROUPNS") {
	case "enter": // in the cgroup by now: the current cgroup becomes the namespace's root
		cmd := exec.Command(os.Args[0], "-test.run=^TestCgroupNamespace$")
		cmd.Env = append(os.Environ(), "SEINE_CGROUPNS=inside")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWCGROUP}
		out, err := cmd.CombinedOutput()
		fmt.Printf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	case "inside":
		for _, path := range []string{"/", "/deeper", os.Getenv("SEINE_CGROUP")} {
			id, level, err := CgroupID(path)
			fmt.Printf("seen %s id %d level %d path %s error %v\n", path, id, level, CgroupPath(id), err)
		}
		return
	}
	outer := makeCgroup(t, "ns")
	inner := makeDir(t, filepath.Join(outer, "inner"))
	deeper := makeDir(t, filepath.Join(inner, "deeper"))
	if !isKernelThread(kthreadd) {
		t.Skip("kthreadd is not seen from this PID namespace")
	}
	fd, err := unix.Open(inner, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cmd := exec.Command(os.Args[0], "-test.run=^TestCgroupNamespace$")
	cmd.Env = append(os.Environ(), "SEINE_CGROUPNS=enter", "SEINE_CGROUP="+outer)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Inside of the namespace the outer cgroup has no path from the root; its
	// handle leads to the real path.
	root, _ := Cgroup2()
	for _, want := range []string{
		fmt.Sprintf("seen / id %d level 2 path / error <nil>", inode(t, inner)),
		fmt.Sprintf("seen /deeper id %d level 3 path /deeper error <nil>", inode(t, deeper)),
		fmt.Sprintf("seen %s id %d level 1 path %s error <nil>", outer, inode(t, outer), strings.TrimPrefix(outer, root)),
	} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

func TestCgroupPath(t *testing.T) {
	outer := makeCgroup(t, "path")
	root, _ := Cgroup2()
	if got := CgroupPath(inode(t, root)); got != "/" {
		t.Errorf("root: got %q, want /", got)
	}
	// Made after the first lookup, and removed before the last one.
	inner := filepath.Join(outer, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	id, want := inode(t, inner), strings.TrimPrefix(inner, root)
	if got := CgroupPath(id); got != want {
		t.Errorf("inner: got %q, want %q", got, want)
	}
	if err := os.Remove(inner); err != nil {
		t.Fatal(err)
	}
	if got := CgroupPath(id); got != want {
		t.Errorf("after its end: got %q, want %q", got, want)
	}
	for _, id := range []uint64{0, 1<<63 + 12345, inode(t, filepath.Join(outer, "cgroup.procs"))} {
		if got := CgroupPath(id); got != "" {
			t.Errorf("id %d is no cgroup: got %q, want nothing", id, got)
		}
	}
}

// TestCgroupPathWalk disables file handles, as for a process without
// CAP_DAC_READ_SEARCH, and counts the walks. Any directory tree will do.
func TestCgroupPathWalk(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"a", "a/b", "c"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1000, 0)
	x := &pathIndex{
		root:      func() (mount, error) { return mount{Root: "/part", Point: root}, nil },
		now:       func() time.Time { return now },
		noHandles: true,
	}
	check := func(what string, id uint64, want string, walks int) {
		t.Helper()
		if got := x.lookup(id); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		if x.walks != walks {
			t.Errorf("%s: %d walks, want %d", what, x.walks, walks)
		}
	}
	check("first", inode(t, filepath.Join(root, "a/b")), "/part/a/b", 1)
	check("root", inode(t, root), "/part", 1)
	check("other", inode(t, filepath.Join(root, "c")), "/part/c", 1)

	late := filepath.Join(root, "c/late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	check("late, too soon", inode(t, late), "", 1)
	for id := range uint64(97) {
		x.lookup(1<<60 + id)
	}
	check("unknown, too soon", 1<<60, "", 1)
	now = now.Add(patience)
	check("late, again", inode(t, late), "/part/c/late", 2)
	check("unknown, again", 1<<60, "", 2)
	now = now.Add(patience)
	check("unknown, a second later", 1<<60, "", 3)
}

func TestWalkCgroups(t *testing.T) {
	if err := WalkCgroups("/no/such/dir", func(string) { t.Error("visited") }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestSteps(t *testing.T) {
	for path, want := range map[string]int{"": 0, "/": 0, "/a": 1, "/a/b/": 2, "/..": -1, "/../..": -2, "/../a": 0, "/../../a/b/c": 1} {
		if got := steps(path); got != want {
			t.Errorf("%q: got %d, want %d", path, got, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, test := range []struct {
		path, dir, rest string
		ok              bool
	}{
		{"/a/b", "/a", "/b", true},
		{"/a", "/a", "", true},
		{"/a", "/", "/a", true},
		{"/", "/", "", true},
		{"/ab", "/a", "/ab", false},
		{"/x", "/a", "/x", false},
	} {
		if rest, ok := below(test.path, test.dir); rest != test.rest || ok != test.ok {
			t.Errorf("%s below %s: got %q %v, want %q %v", test.path, test.dir, rest, ok, test.rest, test.ok)
		}
	}
}

func BenchmarkCgroupPath(b *testing.B) {
	root, err := Cgroup2()
	if err != nil {
		b.Skip(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		b.Fatal(err)
	}
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			CgroupPath(st.Ino)
		}
	})
	b.Run("unknown", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			CgroupPath(1 << 60)
		}
	})
}

func TestCachedLookupsDoNotAllocate(t *testing.T) {
	CgroupPath(1)
	User(0)
	if n := testing.AllocsPerRun(1000, func() { CgroupPath(1) }); n != 0 {
		t.Errorf("CgroupPath: %v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(1000, func() { User(0) }); n != 0 {
		t.Errorf("User: %v allocations, want 0", n)
	}
}
