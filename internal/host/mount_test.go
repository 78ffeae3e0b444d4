// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func magic(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatalf("statfs %s: %v", path, err)
	}
	return int64(st.Type)
}

const hybrid = `22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:9 - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate
`

func TestParseMountinfo(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     []mount
	}{
		{"a part of it", "50 1 0:38 /docker/ab /mnt rw - cgroup2 cgroup rw\n",
			[]mount{{50, "/docker/ab", "/mnt", "cgroup2", "rw"}}},
		{"escapes", `7 1 0:38 /a\134b /my\040mnt\011x\012 rw - cgroup2 none rw` + "\n",
			[]mount{{7, `/a\b`, "/my mnt\tx\n", "cgroup2", "rw"}}},
		{"no source", "7 1 0:38 / /m rw - tracefs  rw\n", []mount{{7, "/", "/m", "tracefs", "rw"}}},
		{"no newline at the end", "7 1 0:38 / /m rw - tracefs t rw", []mount{{7, "/", "/m", "tracefs", "rw"}}},
		{"a mount point called -", "7 1 0:38 / /a\\040-\\040b rw - tracefs t rw\n", []mount{{7, "/", "/a - b", "tracefs", "rw"}}},
		{"cut short", "7 1 0:38 / /m rw - tracefs\n7 1 0:38 / /m\n7\n\n", nil},
		{"not a number", "x 1 0:38 / /m rw - tracefs t rw\n", nil},
		{"escapes that are none", `7 1 0:38 /\9 /\04 rw - a b \` + "\n", []mount{{7, `/\9`, `/\04`, "a", `\`}}},
	} {
		if got := parseMountinfo([]byte(test.in)); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
	got := ofType(parseMountinfo([]byte(hybrid)), "cgroup2")
	want := []mount{{41, "/", "/sys/fs/cgroup/unified", "cgroup2", "rw,nsdelegate"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("hybrid: got %+v, want %+v", got, want)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add(hybrid)
	f.Add(`7 1 0:38 /a\134b /my\040mnt\011x rw - cgroup2 none rw`)
	f.Add(`7 1 0:38 / /\`)
	f.Add("7 1 0:38 / /m rw opt:1 - -  - - \n - - -\n")
	f.Fuzz(func(t *testing.T, in string) {
		mounts := parseMountinfo([]byte(in))
		if lines := strings.Count(in, "\n") + 1; len(mounts) > lines {
			t.Errorf("%d mounts from %d lines", len(mounts), lines)
		}
		for _, m := range mounts {
			if !filepath.IsAbs(m.Point) {
				t.Errorf("mount point %q is not absolute", m.Point)
			}
			if len(m.Point) > len(in) || len(m.Root) > len(in) {
				t.Errorf("%+v grew out of %q", m, in)
			}
		}
	})
}

func TestCgroup2(t *testing.T) {
	path, err := Cgroup2()
	if err != nil {
		if os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if got := magic(t, path); got != unix.CGROUP2_SUPER_MAGIC {
		t.Errorf("%s is of type %#x, want cgroup2 %#x", path, got, unix.CGROUP2_SUPER_MAGIC)
	}
	if again, _ := Cgroup2(); again != path {
		t.Errorf("got %s, then %s", path, again)
	}
	// If mountinfo has a mount of the whole filesystem, that one is taken.
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for _, m := range ofType(parseMountinfo(data), "cgroup2") {
		if m.Root == "/" && strings.HasPrefix(path, "/proc/self/fd/") {
			t.Errorf("got %s although %s is mounted", path, m.Point)
		}
	}
}

// TestPrivateCgroup2 checks that a private mount is the same hierarchy, and that
// making it does not change the options of other mounts.
func TestPrivateCgroup2(t *testing.T) {
	needRoot(t)
	before := cgroupOptions(t)
	path, err := mountPrivately("cgroup2", before)
	if err != nil {
		t.Fatal(err)
	}
	if got := magic(t, path); got != unix.CGROUP2_SUPER_MAGIC {
		t.Errorf("%s is of type %#x, want cgroup2", path, got)
	}
	if after := cgroupOptions(t); after != before {
		t.Errorf("options of the mounted cgroup2 were %q and are %q", before, after)
	}
	dir := makeCgroup(t, "private")
	root, _ := Cgroup2()
	mounted, _, err := CgroupID(dir)
	if err != nil {
		t.Fatal(err)
	}
	private, level, err := CgroupID(path + strings.TrimPrefix(dir, root))
	if err != nil {
		t.Fatal(err)
	}
	if private != mounted || level != 1 {
		t.Errorf("by the private mount: id %d level %d, want id %d level 1", private, level, mounted)
	}
	x := &pathIndex{root: func() (mount, error) { return mount{Root: "/", Point: path}, nil }, now: cgroupPaths.now}
	if got, want := x.lookup(mounted), strings.TrimPrefix(dir, root); got != want {
		t.Errorf("by the private mount: path %q, want %q", got, want)
	}
}

func cgroupOptions(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return optionsInUse("cgroup2", ofType(parseMountinfo(data), "cgroup2"))
}

func TestMountPrivatelyErrors(t *testing.T) {
	needRoot(t)
	if _, err := mountPrivately("nosuchfs", ""); !errors.Is(err, unix.ENODEV) {
		t.Errorf("nosuchfs: got %v, want ENODEV", err)
	}
	if _, err := mountPrivately("cgroup2", "rw,nosuchoption"); err == nil || !strings.Contains(err.Error(), "nosuchoption") {
		t.Errorf("nosuchoption: got %v, want an error that names it", err)
	}
}

func TestTracefs(t *testing.T) {
	needRoot(t)
	path, err := Tracefs()
	if err != nil {
		t.Fatal(err)
	}
	if got := magic(t, path); got != unix.TRACEFS_MAGIC {
		t.Errorf("%s is of type %#x, want tracefs %#x", path, got, unix.TRACEFS_MAGIC)
	}
}

func TestTracepointID(t *testing.T) {
	needRoot(t)
	state, err := TracepointID("sock", "inet_sock_set_state")
	if err != nil {
		t.Fatal(err)
	}
	retransmit, err := TracepointID("tcp", "tcp_retransmit_skb")
	if err != nil {
		t.Fatal(err)
	}
	if state == 0 || state == retransmit {
		t.Errorf("got %d and %d, want two different numbers", state, retransmit)
	}
	for _, name := range [][2]string{{"sock", "no_such_point"}, {"no_such_group", "x"}, {"..", "sock"}, {"sock", "../sock/inet_sock_set_state"}, {"", ""}} {
		if id, err := TracepointID(name[0], name[1]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: got %d, %v, want fs.ErrNotExist", name, id, err)
		}
	}
}
