// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

var errNotRegular = errors.New("not a regular file")

// A found is a file that exists but is not open for reading yet. Opening for
// reading may have effects (devices) or wait (pipes); this has none.
type found struct {
	fd   int
	stat unix.Stat_t
}

// find looks for a regular file at a path of our own, such as one in /proc.
func find(path string) (found, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	return regular(fd, err)
}

// findIn looks for a regular file at a path of another process. Links are
// followed inside its root, so that they cannot lead to files that the process
// does not see. Needs openat2, since 5.6.
func findIn(root int, path string, flags uint64) (found, error) {
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	return regular(fd, err)
}

func regular(fd int, err error) (found, error) {
	if err != nil {
		return found{}, err
	}
	f := found{fd: fd}
	if err := unix.Fstat(fd, &f.stat); err != nil {
		unix.Close(fd)
		return found{}, err
	}
	if f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return found{}, errNotRegular
	}
	return f, nil
}

func (f found) close() { unix.Close(f.fd) }

// open opens the file for reading. f must still be closed.
func (f found) open() (*os.File, error) {
	path := "/proc/self/fd/" + strconv.Itoa(f.fd)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// A place is where the files of a process are. It is opened to look at a process
// and closed soon after: it would keep a file system from being unmounted.
type place struct {
	dir   string // /proc/PID
	root  int    // the process's root; -1 when it cannot be opened
	paths int    // what the paths in its maps start from
}

// openPlace opens the roots of a process. /proc/PID/maps shows paths as seen from
// the reader's root when both are in one mount namespace, also if the process
// did chroot, and else from the root of the other namespace.
func openPlace(dir string) place {
	p := place{dir: dir, root: -1, paths: -1}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1
		}
		return fd
	}
	p.root = open(dir + "/root")
	theirs, err := os.Readlink(dir + "/ns/mnt")
	if ours, _ := os.Readlink("/proc/self/ns/mnt"); err == nil && ours == theirs {
		p.paths = open("/")
	} else {
		p.paths = open(dir + "/root")
	}
	return p
}

func (p place) close() {
	for _, fd := range []int{p.root, p.paths} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// find looks for the file of a mapping. /proc/PID/map_files leads to it even if it
// was deleted or replaced, but needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
func (p place) find(m *mapping) (found, error) {
	f, err := find(p.dir + "/map_files/" + strconv.FormatUint(m.start, 16) + "-" + strconv.FormatUint(m.end, 16))
	if err == nil || errors.Is(err, errNotRegular) {
		return f, err
	}
	if !m.deleted {
		return findIn(p.paths, m.name, 0)
	}
	exe, err := os.Readlink(p.dir + "/exe")
	if err != nil || exe != m.name+" (deleted)" {
		return found{}, unix.ENOENT
	}
	return find(p.dir + "/exe")
}
