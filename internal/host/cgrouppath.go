// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupPath is the path of the cgroup with this id, from the root of the
// hierarchy, or "" if it is not known, for example because the cgroup is gone.
// A known path is kept: the kernel does not reuse ids.
func CgroupPath(id uint64) string { return cgroupPaths.lookup(id) }

var cgroupPaths = &pathIndex{root: cgroup2, now: time.Now}

const (
	maxPaths = 1 << 16         // paths kept; when full, it starts over
	patience = 1 * time.Second // how long an unknown id is not looked up again
)

// A pathIndex maps ids to paths. It asks the kernel for one id at a time if
// that is allowed (CAP_DAC_READ_SEARCH). Otherwise it walks the tree.
type pathIndex struct {
	root func() (mount, error)
	now  func() time.Time

	mu        sync.RWMutex
	paths     map[uint64]string
	unknown   map[uint64]struct{} // not found since `forgotten`
	forgotten time.Time
	handles   *handleRoot // nil before first use
	noHandles bool
	walked    time.Time
	walks     int
	outside   map[uint64]string // above and beside the mount, see walkOutside
}

func (x *pathIndex) lookup(id uint64) string {
	if id == 0 {
		return ""
	}
	x.mu.RLock()
	path, ok := x.paths[id]
	if !ok {
		if _, vain := x.unknown[id]; vain && x.now().Sub(x.forgotten) < patience {
			ok = true
		}
	}
	x.mu.RUnlock()
	if ok {
		return path
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.find(id)
}

// find asks the kernel. The caller holds the lock.
func (x *pathIndex) find(id uint64) string {
	if path, ok := x.paths[id]; ok {
		return path
	}
	now := x.now()
	if x.unknown == nil || now.Sub(x.forgotten) >= patience || len(x.unknown) >= maxPaths {
		x.unknown = make(map[uint64]struct{})
		x.forgotten = now
	}
	if x.paths == nil || len(x.paths) >= maxPaths {
		x.paths = make(map[uint64]string)
	}
	root, err := x.root()
	if err != nil {
		x.unknown[id] = struct{}{}
		return ""
	}
	if !x.noHandles {
		path, err := x.byHandle(root, id)
		switch {
		case err == nil:
			x.paths[id] = path
			return path
		case refused(err):
			x.noHandles = true
		}
		if errors.Is(err, errOutside) {
			if x.outside[id] == "" && x.mayWalk(now) {
				x.walkOutside()
			}
			if path, ok := x.outside[id]; ok {
				x.paths[id] = path
				return path
			}
		}
	}
	if x.noHandles && x.mayWalk(now) {
		x.walk(root, x.paths)
	}
	path, ok := x.paths[id]
	if !ok {
		x.unknown[id] = struct{}{}
	}
	return path
}

func (x *pathIndex) mayWalk(now time.Time) bool {
	if x.walks > 0 && now.Sub(x.walked) < patience {
		return false
	}
	x.walked = now
	x.walks++
	return true
}

// A handleRoot is the mount for open_by_handle_at.
type handleRoot struct {
	fd    int // open until the process ends
	ino   uint64
	point string
}

// errOutside: the cgroup is outside of the mount, which shows only a part of
// the tree, as in a cgroup namespace. The kernel does not give its path then.
var errOutside = errors.New("outside of the mount")

func (x *pathIndex) byHandle(root mount, id uint64) (string, error) {
	if x.handles == nil {
		fd, err := unix.Open(root.Point, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		ino, _, err := nodeID(fd)
		if err != nil {
			unix.Close(fd)
			return "", err
		}
		point, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			unix.Close(fd)
			return "", err
		}
		x.handles = &handleRoot{fd, ino, point}
	}
	fd, err := x.handles.open(id, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	rest, ok := below(strings.TrimSuffix(at, deletedSuffix), x.handles.point)
	if !ok || rest == "" && id != x.handles.ino {
		return "", errOutside
	}
	return path.Join("/", root.Root, rest), nil
}

func (h *handleRoot) open(id uint64, flags int) (int, error) {
	var raw [8]byte
	binary.NativeEndian.PutUint64(raw[:], id)
	return unix.OpenByHandleAt(h.fd, unix.NewFileHandle(fileidKernfs, raw[:]), flags|unix.O_DIRECTORY|unix.O_CLOEXEC)
}

// walkOutside records the paths from the real root, which always has id 1.
func (x *pathIndex) walkOutside() {
	const trueRoot = 1
	fd, err := x.handles.open(trueRoot, unix.O_RDONLY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	x.outside = make(map[uint64]string)
	x.walk(mount{Root: "/", Point: "/proc/self/fd/" + strconv.Itoa(fd)}, x.outside)
}

// refused reports whether handles do not work at all. ESTALE means only that
// this handle is stale.
func refused(err error) bool {
	for _, errno := range []error{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (x *pathIndex) walk(root mount, paths map[uint64]string) {
	// Directories that cannot be read are left out, and looked up again
	// later.
	_ = WalkCgroups(root.Point, func(at string) {
		var st unix.Stat_t
		if len(paths) < maxPaths && unix.Stat(root.Point+at, &st) == nil {
			paths[st.Ino] = path.Join("/", root.Root, at)
		}
	})
}

// WalkCgroups calls visit for dir, as "/", and for each directory below it,
// parents first. Cgroups come and go meanwhile: only dir itself must exist.
func WalkCgroups(dir string, visit func(path string)) error {
	// WalkDir does not enter a symbolic link, such as /proc/self/fd/5.
	return filepath.WalkDir(dir+"/.", func(at string, d fs.DirEntry, err error) error {
		if d == nil {
			return err
		}
		if err == nil && d.IsDir() {
			rest, _ := below(at, dir)
			visit(path.Join("/", rest))
		}
		return nil
	})
}
