// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Cgroup2 is the path of the cgroup2 hierarchy. If it is not mounted as a
// whole, seine mounts one that only this process sees. The path is then
// /proc/self/fd/N and does not work in other processes, children included.
func Cgroup2() (path string, err error) {
	m, err := cgroup2()
	return m.Point, err
}

// Tracefs is the path of tracefs. Like Cgroup2's, the path may work only in
// this process.
func Tracefs() (path string, err error) {
	m, err := tracefs()
	return m.Point, err
}

var (
	cgroup2 = sync.OnceValues(func() (mount, error) { return reach("cgroup2", unix.CGROUP2_SUPER_MAGIC) })
	tracefs = sync.OnceValues(func() (mount, error) { return reach("tracefs", unix.TRACEFS_MAGIC) })
)

// A mount is one line of mountinfo.
type mount struct {
	ID      int
	Root    string // the directory of the filesystem that is seen at Point
	Point   string
	Type    string
	Options string // of the filesystem (the super block), not of the mount
}

// reach finds a filesystem of this type. It prefers a mount of the whole
// filesystem, then a private mount, then a mount of a part of it, which
// containers may have.
func reach(fstype string, magic int64) (mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mount{}, fmt.Errorf("finding %s: %w", fstype, err)
	}
	mounts := ofType(parseMountinfo(data), fstype)
	var part *mount
	for i, m := range mounts {
		// A mount that is covered by another one is listed but not
		// reachable.
		var st unix.Statfs_t
		if unix.Statfs(m.Point, &st) != nil || int64(st.Type) != magic {
			continue
		}
		if m.Root == "/" {
			return m, nil
		}
		if part == nil {
			part = &mounts[i]
		}
	}
	path, err := mountPrivately(fstype, optionsInUse(fstype, mounts))
	switch {
	case err == nil:
		return mount{Root: "/", Point: path, Type: fstype}, nil
	case part != nil:
		return *part, nil
	}
	return mount{}, err
}

// optionsInUse is the current options of the filesystem. cgroup2 and tracefs
// have one instance in the kernel: a further mount that does not repeat
// nsdelegate or gid= removes the option from every other mount.
func optionsInUse(fstype string, mounts []mount) string {
	if len(mounts) == 0 {
		data, err := os.ReadFile("/proc/1/mountinfo")
		if err != nil {
			return ""
		}
		mounts = ofType(parseMountinfo(data), fstype)
	}
	if len(mounts) == 0 {
		return ""
	}
	return mounts[0].Options
}

// mountPrivately mounts a filesystem that is not attached to the directory tree
// (since 5.2). The descriptor stays open until the process ends, and keeps the
// mount.
func mountPrivately(fstype, options string) (path string, err error) {
	fsfd, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", mountError(fstype, err)
	}
	defer unix.Close(fsfd)
	for option := range strings.SplitSeq(options, ",") {
		key, value, hasValue := strings.Cut(option, "=")
		switch {
		case key == "" || key == "rw" || key == "ro":
			continue
		case hasValue:
			err = unix.FsconfigSetString(fsfd, key, value)
		default:
			err = unix.FsconfigSetFlag(fsfd, key)
		}
		if err != nil {
			return "", fmt.Errorf("mounting %s privately: option %s: %w", fstype, option, err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return "", mountError(fstype, err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return "", mountError(fstype, err)
	}
	return "/proc/self/fd/" + strconv.Itoa(fd), nil
}

func mountError(fstype string, err error) error {
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%s: this kernel does not have it: %w", fstype, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s is not mounted, and mounting it privately needs CAP_SYS_ADMIN: %w", fstype, err)
	}
	return fmt.Errorf("mounting %s privately: %w", fstype, err)
}

func ofType(mounts []mount, fstype string) []mount {
	var some []mount
	for _, m := range mounts {
		if m.Type == fstype {
			some = append(some, m)
		}
	}
	return some
}

// parseMountinfo reads the lines of proc(5)'s mountinfo and skips what it does
// not understand:
//
//	41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
func parseMountinfo(data []byte) []mount {
	var mounts []mount
	for line := range bytes.Lines(data) {
		// Fields may be empty, so that only single spaces divide them.
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		if !ok {
			continue
		}
		place, fs := strings.Split(before, " "), strings.Split(after, " ")
		if len(place) < 6 || len(fs) < 3 {
			continue
		}
		id, err := strconv.Atoi(place[0])
		if err != nil || !filepath.IsAbs(place[4]) {
			continue
		}
		mounts = append(mounts, mount{
			ID:      id,
			Root:    unescape(place[3]),
			Point:   unescape(place[4]),
			Type:    unescape(fs[0]),
			Options: fs[2],
		})
	}
	return mounts
}

// unescape undoes the kernel's escapes in mountinfo: space, tab, newline and
// backslash are written as three octal digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
