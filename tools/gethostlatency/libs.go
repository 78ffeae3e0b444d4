// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"seine/internal/tool"
)

// libraries are the files whose functions are probed: every C library that a
// process has mapped, those in the usual places of each root directory in use,
// and the files of --lib. Probes are on inodes, so each file needs them once for
// all processes, and a file that was replaced on disk keeps its probes. A file
// is kept open, so that every program can be attached to it and its inode number
// is not reused.
type libraries struct {
	lib    string   // the value of --lib
	asked  []wanted // by --lib
	notice chan int

	mu     sync.Mutex
	files  map[fileID]*library // nil: checked, and not a C library
	mapped map[mapID]bool      // files that were checked, by their numbers in /proc/PID/maps
	probes []*probes
	done   chan struct{} // closed at the end
	worker sync.WaitGroup
}

// wanted is one PATH[:SYMBOL] of --lib.
type wanted struct{ path, symbol string }

// library is one file.
type library struct {
	file  *os.File
	exe   *link.Executable
	funcs map[string]uint64 // where its functions are in the file
	asked bool              // by --lib
	other []string          // and these of its functions
}

type fileID struct{ dev, ino uint64 }

// mapID is the device and the inode in /proc/PID/maps. On some file systems they
// differ from those of stat.
type mapID struct{ dev, ino string }

// newLibraries reads the value of --lib.
func newLibraries(lib string) *libraries {
	l := &libraries{lib: lib, notice: make(chan int, 256)}
	for one := range strings.SplitSeq(lib, ",") {
		w := wanted{path: one}
		if i := strings.LastIndexByte(one, ':'); i >= 0 && !strings.Contains(one[i:], "/") {
			w.path, w.symbol = one[:i], one[i+1:]
		}
		if one != "" {
			l.asked = append(l.asked, w)
		}
	}
	return l
}

// check checks that the files of --lib have resolvers.
func (l *libraries) check() error {
	l.begin()
	defer l.end()
	for _, w := range l.asked {
		f, err := os.Open(w.path)
		if err != nil {
			return tool.Usagef("--lib: %v", err)
		}
		lib := l.add(f, true)
		if lib == nil {
			return tool.Usagef("--lib %s: not a program or library for this kind of machine", w.path)
		}
		want := calls[:len(calls)-1]
		if w.symbol != "" {
			want = []string{w.symbol}
		}
		if !slices.ContainsFunc(want, func(f string) bool { return lib.funcs[f] != 0 }) {
			return tool.Usagef("--lib %s: it does not define %s", w.path, strings.Join(want, ", "))
		}
	}
	return nil
}

func (l *libraries) begin() {
	l.files, l.mapped, l.done = map[fileID]*library{}, map[mapID]bool{}, make(chan struct{})
}

func (l *libraries) end() {
	close(l.done)
	for _, lib := range l.files {
		if lib != nil {
			lib.file.Close()
		}
	}
	l.files = nil
}

// find adds the files that exist now.
func (l *libraries) find() error {
	for _, w := range l.asked {
		f, err := os.Open(w.path)
		if err != nil {
			return fmt.Errorf("--lib: %w", err)
		}
		lib := l.add(f, true)
		if lib == nil {
			continue
		}
		lib.asked = true
		if w.symbol != "" && !slices.Contains(calls[:], w.symbol) {
			lib.other = append(lib.other, w.symbol)
		}
	}
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range dir {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			l.inMaps(pid)
			l.inRoot(pid)
		}
	}
	return nil
}

// look queues a process that has started another program.
func (l *libraries) look(pid int) {
	select {
	case l.notice <- pid:
	default: // a flood of new programs; each is noticed again when it is next run
	}
}

// again is when a new process is examined again: at first it has mapped only
// its loader.
var again = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}

func (l *libraries) work(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case pid := <-l.notice:
			l.inside(pid, (*libraries).inRoot)
			l.inside(pid, (*libraries).inMaps)
			for _, d := range again {
				time.AfterFunc(d, func() { l.inside(pid, (*libraries).inMaps) })
			}
		}
	}
}

// inside searches a process, unless the run has ended.
func (l *libraries) inside(pid int, search func(*libraries, int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files != nil {
		search(l, pid)
	}
}

// isLibc says whether a file of this name is a C library.
func isLibc(name string) bool {
	name = path.Base(name)
	return strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libc-2.") || strings.HasPrefix(name, "ld-musl-") ||
		strings.HasPrefix(name, "libc.musl-") || strings.HasPrefix(name, "libuClibc-")
}

// inMaps finds the C libraries that a process has mapped. map_files opens them
// even if they were deleted or are in another mount namespace.
func (l *libraries) inMaps(pid int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		// 7f25a8c28000-7f25a8dbd000 r-xp 00028000 fe:00 1835041 /usr/lib/libc.so.6 (deleted)
		w := strings.SplitN(sc.Text(), " ", 6)
		if len(w) < 6 || !strings.Contains(w[1], "x") || !isLibc(w[5]) || l.mapped[mapID{w[3], w[4]}] {
			continue
		}
		lib, err := os.Open(fmt.Sprintf("/proc/%d/map_files/%s", pid, w[0]))
		if err != nil {
			lib, err = os.OpenFile(fmt.Sprintf("/proc/%d/root%s", pid, strings.TrimLeft(w[5], " ")), os.O_RDONLY|unix.O_NONBLOCK, 0)
		}
		if err != nil {
			continue
		}
		l.mapped[mapID{w[3], w[4]}] = true
		l.add(lib, false)
	}
}

// cpus is a C compiler's names of the architectures.
var cpus = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// places is where C libraries are.
var places = func() []string {
	cpu := cpus[runtime.GOARCH]
	return []string{
		"/lib/" + cpu + "-linux-gnu/libc.so.6", "/usr/lib/" + cpu + "-linux-gnu/libc.so.6",
		"/lib64/libc.so.6", "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6",
		"/lib/ld-musl-" + cpu + ".so.1",
	}
}()

// inRoot finds C libraries in the usual places below a process's root directory,
// also those that no process has mapped yet.
func (l *libraries) inRoot(pid int) {
	l.inDir(fmt.Sprintf("/proc/%d/root", pid))
}

func (l *libraries) inDir(dir string) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(root)
	for _, name := range places {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
		fd, err := unix.Openat2(root, name, &how)
		if err != nil {
			continue
		}
		// The path may be a FIFO or a device, or become one between the
		// two calls.
		if _, known := l.files[idOf(fd)]; !known && isRegular(fd) {
			how.Flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
			if fd, err := unix.Openat2(root, name, &how); err == nil {
				l.add(os.NewFile(uintptr(fd), name), false)
			}
		}
		unix.Close(fd)
	}
}

func idOf(fd int) fileID {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return fileID{}
	}
	return fileID{st.Dev, st.Ino}
}

func isRegular(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// add adds a file that is not known yet and attaches the loaded programs to it.
// It returns nil if the file cannot be probed.
func (l *libraries) add(f *os.File, static bool) *library {
	id := idOf(int(f.Fd()))
	if lib, known := l.files[id]; known {
		f.Close()
		return lib
	}
	// The kernel takes a path; this one leads to the open file.
	exe, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	funcs := functions(f, static)
	if err != nil || funcs == nil {
		f.Close()
		l.files[id] = nil
		return nil
	}
	lib := &library{file: f, exe: exe, funcs: funcs}
	l.files[id] = lib
	for _, p := range l.probes {
		// A file that cannot be probed is not seen. That is not a
		// reason to end.
		_ = p.put(lib)
	}
	return lib
}
