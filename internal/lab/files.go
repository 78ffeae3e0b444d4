// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileCount says how often a process read or wrote one kind of file.
type FileCount struct {
	Op     string `json:"op"`   // read or write
	Type   string `json:"type"` // regular, socket:inet, anon:eventfd
	Count  int    `json:"count"`
	Errors int    `json:"errors"`
	Bytes  int64  `json:"bytes"`
}

// Files is a process that is ready to read and write files of every kind.
type Files struct{ *Proc }

// FilesComm is the name of the thread that reads and writes. Other threads of
// the process talk to its parent through pipes.
const FilesComm = "lab-files"

const bodyFiles = "files"

func init() { Register(bodyFiles, doFiles) }

// StartFiles starts the process.
func StartFiles(w *World, host string) (*Files, error) {
	p, err := w.StartReady(host, "", bodyFiles, nil)
	return &Files{p}, err
}

// Run makes the calls and waits for the process to end.
func (f *Files) Run() ([]FileCount, error) {
	var out []FileCount
	if err := f.Call("go", &out); err != nil {
		return nil, err
	}
	return out, f.Wait()
}

type files struct{ out []FileCount }

// did counts a call and checks its result.
func (f *files) did(op, kind string, want, n int, err error) error {
	var c *FileCount
	for i := range f.out {
		if f.out[i].Op == op && f.out[i].Type == kind {
			c = &f.out[i]
		}
	}
	if c == nil {
		f.out = append(f.out, FileCount{Op: op, Type: kind})
		c = &f.out[len(f.out)-1]
	}
	c.Count++
	switch {
	case want < 0 && err != nil:
		c.Errors++
	case err != nil || n != want:
		return fmt.Errorf("%s of %s: %d bytes, want %d: %w", op, kind, n, want, err)
	default:
		c.Bytes += int64(n)
	}
	return nil
}

func doFiles(c *Child) error {
	uring := UringSupported()
	var fds files
	open, err := openFiles()
	if err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	name := make([]byte, maxComm+1)
	if err := unix.Prctl(unix.PR_GET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
		return err
	}
	if err := SetThreadComm(FilesComm); err != nil {
		return err
	}
	for _, o := range open {
		for i := range o.times {
			if err := o.use(&fds, i); err != nil {
				return err
			}
		}
	}
	if uring == nil {
		if err := fds.ring(open[0].fd); err != nil {
			return err
		}
	}
	if err := SetThreadComm(unix.ByteSliceToString(name)); err != nil {
		return err
	}
	return c.Report(fds.out)
}

// SetThreadComm names only the calling thread.
func SetThreadComm(comm string) error {
	b := append([]byte(comm), 0)
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
}

// openFile is a file and the calls to make on it.
type openFile struct {
	kind  string
	fd    int // to write to, and to read from if peer is 0
	peer  int
	times int
}

func openFiles() ([]openFile, error) {
	memory, err := unix.MemfdCreate("lab", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	out := []openFile{{kind: "regular", fd: memory, times: 7}}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	out = append(out, openFile{kind: "pipe", fd: p[1], peer: p[0], times: 3})
	for _, n := range []Network{Unix, TCP4, TCP6, UDP4} {
		addr := "127.0.0.1:0"
		if n == TCP6 {
			addr = "[::1]:0"
		}
		l := Load{Network: n, Count: 1, Size: 10}
		if err := l.defaults(); err != nil {
			return nil, err
		}
		x, err := newLine(l, addr)
		if err != nil {
			return nil, err
		}
		name := map[int]string{unix.AF_UNIX: "unix", unix.AF_INET: "inet", unix.AF_INET6: "inet6"}[n.Family()]
		out = append(out, openFile{kind: "socket:" + name, fd: x.w, peer: x.r, times: 11})
	}
	for _, o := range []struct {
		kind  string
		times int
		open  func() (int, error)
	}{
		{"char", 5, func() (int, error) { return unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0) }},
		{"anon:eventfd", 13, func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) }},
		{"anon:eventpoll", 2, func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }},
		{"directory", 2, func() (int, error) { return unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) }},
	} {
		fd, err := o.open()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.kind, err)
		}
		out = append(out, openFile{kind: o.kind, fd: fd, times: o.times})
	}
	return out, nil
}

// use writes to a file and reads from it, with a different call each time.
func (o openFile) use(f *files, i int) error {
	b := make([]byte, 10)
	from := o.fd
	if o.peer != 0 {
		from = o.peer
	}
	want := len(b)
	switch o.kind {
	case "anon:eventpoll", "directory":
		n, err := unix.Read(from, b)
		return f.did("read", o.kind, -1, n, err)
	case "pipe": // nothing is there yet; such a call does not count
		if _, err := unix.Read(from, b); !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("read of an empty pipe: %w", err)
		}
	case "anon:eventfd":
		b, want = binary.NativeEndian.AppendUint64(nil, 1), 8
	}
	write, read := func() (int, error) { return unix.Write(o.fd, b) }, func() (int, error) { return unix.Read(from, b) }
	switch {
	case i%3 == 1 && o.kind != "anon:eventfd":
		write = func() (int, error) { return unix.Writev(o.fd, halves(b)) }
		read = func() (int, error) { return unix.Readv(from, halves(b)) }
	case o.kind == "regular" && i%3 == 2:
		write = func() (int, error) { return unix.Pwritev2(o.fd, halves(b), 0, 0) }
		read = func() (int, error) { return unix.Preadv2(from, halves(b), 0, 0) }
	case o.kind == "regular":
		write = func() (int, error) { return unix.Pwrite(o.fd, b, 0) }
		read = func() (int, error) { return unix.Pread(from, b, 0) }
	}
	if o.kind == "regular" && i%3 == 1 {
		read = func() (int, error) { return unix.Preadv(from, halves(b), 0) }
	}
	n, err := write()
	if err := f.did("write", o.kind, want, n, err); err != nil {
		return err
	}
	n, err = read()
	return f.did("read", o.kind, want, n, err)
}

// ring does the same through io_uring. A request for a descriptor that is not open
// has no file.
func (f *files) ring(fd int) error {
	r, err := NewRing(1)
	if err != nil {
		return err
	}
	defer r.Close()
	b := make([]byte, 10)
	n, err := r.Write(fd, b)
	if err := f.did("write", "regular", len(b), n, err); err != nil {
		return err
	}
	n, err = r.Read(fd, b)
	if err := f.did("read", "regular", len(b), n, err); err != nil {
		return err
	}
	n, err = r.Writev(fd, b)
	if err := f.did("write", "regular", len(b), n, err); err != nil {
		return err
	}
	n, err = r.Readv(fd, b)
	if err := f.did("read", "regular", len(b), n, err); err != nil {
		return err
	}
	if _, err := r.Read(1<<20, b); !errors.Is(err, unix.EBADF) {
		return fmt.Errorf("a read of nothing: %v, want EBADF", err)
	}
	return nil
}
