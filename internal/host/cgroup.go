// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	cgroup1Magic  = 0x27e0eb
	fileidKernfs  = 0xfe // FILEID_KERNFS, since 5.5: the handle is the node's 64-bit id
	initCgroupNS  = "cgroup:[4026531835]"
	kthreadd      = 2
	kernelThread  = 0x00200000 // PF_KTHREAD
	deletedSuffix = " (deleted)"
)

// CgroupID returns the id that bpf_get_current_cgroup_id returns in the cgroup
// at path, and its level for bpf_get_current_ancestor_cgroup_id: 0 for the root.
// path is absolute in a mounted cgroup2, or begins at the root of the hierarchy,
// as /proc/PID/cgroup has it.
func CgroupID(path string) (id uint64, level int, err error) {
	fd, err := openCgroup(path)
	if err != nil {
		return 0, 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	defer unix.Close(fd)
	id, mountID, err := nodeID(fd)
	if err != nil {
		return 0, 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	level, err = cgroupLevel(fd, mountID)
	if err != nil {
		return 0, 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return id, level, nil
}

// openCgroup opens the directory as O_PATH.
func openCgroup(path string) (int, error) {
	if path == "" {
		return -1, errors.New("the path is empty")
	}
	root, rootErr := Cgroup2()
	var asGiven error
	if filepath.IsAbs(path) {
		fd, err := openCgroup2Dir(filepath.Clean(path))
		if err == nil {
			return fd, nil
		}
		asGiven = err
	}
	if rootErr != nil {
		return -1, rootErr
	}
	// Clean, so that ".." cannot lead out of the hierarchy.
	fd, err := openCgroup2Dir(root + filepath.Clean("/"+path))
	switch {
	case err == nil:
		return fd, nil
	case !errors.Is(err, unix.ENOENT):
		return -1, err
	case asGiven != nil && !errors.Is(asGiven, unix.ENOENT):
		return -1, asGiven
	}
	return -1, fmt.Errorf("not found, here or below %s: %w", root, err)
}

func openCgroup2Dir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		unix.Close(fd)
		return -1, err
	}
	switch int64(fs.Type) {
	case unix.CGROUP2_SUPER_MAGIC:
		return fd, nil
	case cgroup1Magic:
		err = errors.New("a directory of cgroup version 1: only cgroup2 can be filtered by")
	default:
		err = errors.New("a directory, but not of a cgroup2 filesystem")
	}
	unix.Close(fd)
	return -1, err
}

// nodeID asks for the kernel's own id of a cgroup directory. The inode number is
// the same on 64-bit machines, and is used where file handles are refused.
func nodeID(fd int) (id uint64, mountID int, err error) {
	handle, mountID, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err == nil && handle.Size() == 8 {
		return binary.NativeEndian.Uint64(handle.Bytes()), mountID, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	return st.Ino, mountOf(fd), nil
}

func mountOf(fd int) int {
	info, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	for line := range bytes.Lines(info) {
		if value, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
			if id, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil {
				return id
			}
		}
	}
	return -1
}

// cgroupLevel counts the directories between a cgroup and the real root, which
// may be above the root that this process sees.
func cgroupLevel(fd, mountID int) (int, error) {
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	at = strings.TrimSuffix(at, deletedSuffix)
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	// A private mount is not listed: its paths begin at the root.
	for _, m := range parseMountinfo(data) {
		if m.ID == mountID {
			rest, _ := below(at, m.Point)
			at = m.Root + rest
			break
		}
	}
	base, err := namespaceLevel()
	return base + steps(at), err
}

// below is the rest of path under dir: "" for dir itself, else "/…".
func below(path, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return path, false
	}
	if rest == "/" {
		rest = ""
	}
	return rest, true
}

// steps is the depth of a path. Mounts and processes outside of this cgroup
// namespace have paths that begin with "/..".
func steps(path string) int {
	n := 0
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			n--
		default:
			n++
		}
	}
	return n
}

// namespaceLevel is the level of the cgroup that this process sees as the root.
// In a cgroup namespace it is read off kthreadd, which never leaves the true root.
var namespaceLevel = sync.OnceValues(func() (int, error) {
	link, err := os.Readlink("/proc/self/ns/cgroup")
	if err != nil || link == initCgroupNS {
		return 0, nil
	}
	if isKernelThread(kthreadd) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", kthreadd))
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(data) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
				return -steps(at), nil
			}
		}
	}
	return 0, errors.New("seine runs in a cgroup namespace and cannot tell how deep it lies: " +
		"run it with the host's cgroup or PID namespace (--cgroupns=host or --pid=host)")
})

func isKernelThread(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name may hold spaces and brackets: count from the last bracket.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return err == nil && flags&kernelThread != 0
}
