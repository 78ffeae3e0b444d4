// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// netnsDirs is where ip-netns(8) keeps its names.
var netnsDirs = []string{"/run/netns", "/var/run/netns"}

const (
	// maxPID is the kernel's PID_MAX_LIMIT: no process has a higher number.
	maxPID = 4 << 20
	// minInode is below the inode number of every namespace. Numbers are
	// assigned from 0xF0000000 on; the initial namespaces have fixed numbers
	// just below that.
	minInode = 0xE0000000
)

// NetnsInode returns the inode number that identifies a network namespace. spec
// is a path (/run/netns/blue, /proc/7/ns/net), a name of ip-netns(8), a process
// id, the inode itself, or the form of ls: net:[4026531840]. For the last two
// forms it does not check that the namespace exists.
func NetnsInode(spec string) (uint32, error) {
	if inner, ok := strings.CutPrefix(spec, "net:["); ok {
		n, err := strconv.ParseUint(strings.TrimSuffix(inner, "]"), 10, 32)
		if err != nil || !strings.HasSuffix(inner, "]") {
			return 0, fmt.Errorf("network namespace %q: not of the form net:[4026531840]", spec)
		}
		return uint32(n), nil
	}
	if spec == "" {
		return 0, errors.New("network namespace: give a path, a name, a process id or an inode number")
	}
	if strings.Contains(spec, "/") {
		ino, err := netnsFile(spec)
		if err != nil {
			return 0, fmt.Errorf("network namespace %s: %w", spec, err)
		}
		return ino, nil
	}
	if n, err := strconv.ParseUint(spec, 10, 64); err == nil {
		return netnsNumber(spec, n)
	}
	ino, err := netnsName(spec)
	if err != nil {
		return 0, fmt.Errorf("network namespace %q: %w", spec, err)
	}
	return ino, nil
}

func netnsNumber(spec string, n uint64) (uint32, error) {
	switch {
	case n >= minInode && n <= 0xFFFFFFFF:
		return uint32(n), nil
	case n == 0 || n > maxPID:
		return 0, fmt.Errorf("network namespace %s: neither a process id nor an inode number (these begin at %d)", spec, uint32(minInode))
	}
	ino, err := netnsFile(fmt.Sprintf("/proc/%d/ns/net", n))
	if errors.Is(err, unix.ENOENT) {
		// `ip netns add 7` is allowed.
		if ino, err := netnsName(spec); err == nil {
			return ino, nil
		}
		return 0, fmt.Errorf("network namespace %s: there is no process %s", spec, spec)
	}
	if err != nil {
		return 0, fmt.Errorf("network namespace of process %s: %w", spec, err)
	}
	return ino, nil
}

func netnsName(name string) (uint32, error) {
	var known []string
	for _, dir := range netnsDirs {
		if isName(name) {
			ino, err := netnsFile(filepath.Join(dir, name))
			if !errors.Is(err, unix.ENOENT) {
				return ino, err
			}
		}
		entries, _ := os.ReadDir(dir)
		if len(known) == 0 { // /var/run is /run
			for _, e := range entries {
				known = append(known, e.Name())
			}
		}
	}
	if len(known) == 0 {
		return 0, fmt.Errorf("there is no such name in %s, which has no names", netnsDirs[0])
	}
	return 0, fmt.Errorf("there is no such name in %s: it has %s", netnsDirs[0], strings.Join(known, ", "))
}

// netnsFile reads the inode of a namespace file. It checks the kind of the file
// before it opens it: opening a FIFO would block, and opening a device might
// have effects.
func netnsFile(path string) (uint32, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, netnsError(err)
	}
	defer unix.Close(at)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil {
		return 0, err
	}
	if int64(fs.Type) != unix.NSFS_MAGIC {
		return 0, errors.New("not a namespace: expected a file such as /run/netns/NAME or /proc/PID/ns/net")
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, netnsError(err)
	}
	defer unix.Close(fd)
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil {
		return 0, fmt.Errorf("asking for the kind of namespace: %w", err)
	}
	if kind != unix.CLONE_NEWNET {
		return 0, errors.New("a namespace of another kind, not of the network")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return uint32(st.Ino), nil
}

func netnsError(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: namespaces of others' processes need CAP_SYS_PTRACE", err)
	}
	return err
}

// NetnsNames are the names that ip-netns(8) keeps, by inode. Of several names of
// one namespace the first in the alphabet counts.
func NetnsNames() map[uint32]string {
	names := map[uint32]string{}
	for _, dir := range netnsDirs {
		entries, _ := os.ReadDir(dir) // sorted
		for _, e := range entries {
			ino, err := netnsFile(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			if old, ok := names[ino]; !ok || e.Name() < old {
				names[ino] = e.Name()
			}
		}
	}
	return names
}
