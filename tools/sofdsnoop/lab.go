// SPDX-License-Identifier: Apache-2.0

package sofdsnoop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// item is a descriptor that was passed, as its sender sees it.
type item struct {
	FD         int
	Type, Name string
}

// sent is the sender's report, and received the receiver's.
type sent struct {
	Items  []item
	Socket string // FD:socket:[inode]
}
type received struct {
	FDs    []int
	Socket string
}

const (
	bodySend = "sofdsnoop-send"
	bodyRecv = "sofdsnoop-recv"
	busPath  = "@sofdsnoop"
)

// The messages of a case, by name.
var messages = map[string]func(*sender) error{
	"three":  (*sender).three,
	"parts":  (*sender).parts,
	"kinds":  (*sender).kinds,
	"mmsg":   (*sender).batch,
	"most":   (*sender).most,
	"failed": (*sender).failed,
}

// sender has a socket to pass descriptors through.
type sender struct {
	fd  int
	dir string
	out sent
}

// send is the sender's body: it connects, sends the messages of the case, and
// reports them.
func send(c *lab.Child) error {
	var arg struct{ Case, Dir string }
	if err := c.Arg(&arg); err != nil {
		return err
	}
	s := &sender{dir: arg.Dir}
	var err error
	if s.fd, err = lab.Connect(lab.UnixPacket, busPath); err != nil {
		return err
	}
	if s.out.Socket, err = socketName(s.fd); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	if err := messages[arg.Case](s); err != nil {
		return err
	}
	return c.Report(s.out)
}

func socketName(fd int) (string, error) {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return fmt.Sprintf("%d:%s", fd, link), err
}

func (s *sender) add(fd int, kind, name string) int {
	s.out.Items = append(s.out.Items, item{fd, kind, name})
	return fd
}

func (s *sender) file(name string) (int, error) {
	path := s.dir + "/" + name
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	return s.add(fd, "regular", path), nil
}

func (s *sender) pipe() (int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p[1]))
	return s.add(p[1], "pipe", name), err
}

func (s *sender) memfd() (int, error) {
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	return s.add(fd, "memfd", "memfd:shared"), err
}

// three descriptors in one message.
func (s *sender) three() error {
	file, err := s.file("a file")
	if err != nil {
		return err
	}
	pipe, err := s.pipe()
	if err != nil {
		return err
	}
	memfd, err := s.memfd()
	if err != nil {
		return err
	}
	return unix.Sendmsg(s.fd, []byte("x"), unix.UnixRights(file, pipe, memfd), nil, 0)
}

// parts: two control messages with descriptors, credentials between them. The first
// one ends where the next begins; after the credentials there are four bytes between.
func (s *sender) parts() error {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	s.add(event, "anon:eventfd", "anon_inode:[eventfd]")
	file, err := s.file("second")
	if err != nil {
		return err
	}
	memfd, err := s.memfd()
	if err != nil {
		return err
	}
	oob := append(unix.UnixRights(event, file), unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid())})...)
	return unix.Sendmsg(s.fd, []byte("x"), append(oob, unix.UnixRights(memfd)...), nil, 0)
}

// kinds: sockets of several families, a directory, a device.
func (s *sender) kinds() error {
	var fds []int
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	fds = append(fds, s.add(l, "socket:inet", fmt.Sprintf("tcp 127.0.0.1:%d", port)))
	tcp, err := lab.Connect(lab.TCP4, fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	own, err := lab.LocalPort(tcp)
	if err != nil {
		return err
	}
	fds = append(fds, s.add(tcp, "socket:inet", fmt.Sprintf("tcp 127.0.0.1:%d > 127.0.0.1:%d", own, port)))
	udp, port, err := lab.Bind(lab.UDP6, "[::1]:0")
	if err != nil {
		return err
	}
	fds = append(fds, s.add(udp, "socket:inet6", fmt.Sprintf("udp [::1]:%d", port)))
	bus, _, err := lab.Bind(lab.Unix, s.dir+"/bus")
	if err != nil {
		return err
	}
	fds = append(fds, s.add(bus, "socket:unix", "unix "+s.dir+"/bus"))
	for _, o := range []struct{ path, kind string }{{"/dev/null", "char"}, {s.dir, "directory"}, {"/", "directory"}} {
		fd, err := unix.Open(o.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		fds = append(fds, s.add(fd, o.kind, o.path))
	}
	return unix.Sendmsg(s.fd, []byte("x"), unix.UnixRights(fds...), nil, 0)
}

// most: as many descriptors as a message can carry.
func (s *sender) most() error {
	file, err := s.file("often")
	if err != nil {
		return err
	}
	fds := []int{file}
	for range 252 {
		fds = append(fds, s.add(file, s.out.Items[0].Type, s.out.Items[0].Name))
	}
	return unix.Sendmsg(s.fd, []byte("x"), unix.UnixRights(fds...), nil, 0)
}

// failed: sends that fail pass no descriptor; the send after them does.
func (s *sender) failed() error {
	file, err := s.file("unsent")
	if err != nil {
		return err
	}
	s.out.Items = nil
	if err := unix.Sendmsg(s.fd, []byte("x"), unix.UnixRights(file, 1<<20), nil, 0); !errors.Is(err, unix.EBADF) {
		return fmt.Errorf("a descriptor that is none: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(file), nil, unix.MSG_NOSIGNAL); !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("to nobody: %w", err)
	}
	pipe, err := s.pipe()
	if err != nil {
		return err
	}
	return unix.Sendmsg(s.fd, []byte("x"), unix.UnixRights(pipe), nil, 0)
}

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	unix.Msghdr
	len uint32
	_   uint32
}

// batch: sendmmsg of three messages, the second without descriptors.
func (s *sender) batch() error {
	file, err := s.file("one")
	if err != nil {
		return err
	}
	pipe, err := s.pipe()
	if err != nil {
		return err
	}
	memfd, err := s.memfd()
	if err != nil {
		return err
	}
	n, err := mmsg(unix.SYS_SENDMMSG, s.fd, [][]byte{unix.UnixRights(file), nil, unix.UnixRights(pipe, memfd)}, nil)
	if err == nil && n != 3 {
		err = fmt.Errorf("%d messages of 3", n)
	}
	return err
}

// mmsg makes one call with several messages. Each has one byte and a control
// buffer; used gets the used length of each buffer.
func mmsg(call uintptr, fd int, control [][]byte, used []int) (int, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	data := []byte("x")
	iov := unix.Iovec{Base: &data[0]}
	iov.SetLen(1)
	pin.Pin(&data[0])
	pin.Pin(&iov)
	msgs := make([]mmsghdr, len(control))
	for i, c := range control {
		msgs[i].Iov = &iov
		msgs[i].SetIovlen(1)
		if len(c) > 0 {
			pin.Pin(&c[0])
			msgs[i].Control = &c[0]
			msgs[i].SetControllen(len(c))
		}
	}
	n, _, e := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	for i := range used {
		used[i] = int(msgs[i].Controllen)
	}
	return int(n), nil
}

// receive is the other body: accept one connection, take messages until its
// end, by recvmsg or recvmmsg.
func receive(c *lab.Child) error {
	var arg struct {
		Case string
		Room int
	}
	if err := c.Arg(&arg); err != nil {
		return err
	}
	l, _, err := lab.Listen(lab.UnixPacket, busPath, 1)
	if err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	fd, err := lab.Accept(l)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, map[bool]int{true: 1}[arg.Case == "parts"]); err != nil {
		return err
	}
	var out received
	if out.Socket, err = socketName(fd); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	take := func(oob []byte) error {
		parts, err := unix.ParseSocketControlMessage(oob)
		for _, p := range parts {
			if p.Header.Type == unix.SCM_RIGHTS {
				fds, err := unix.ParseUnixRights(&p)
				if err != nil {
					return err
				}
				out.FDs = append(out.FDs, fds...)
			}
		}
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	if arg.Case == "mmsg" {
		control, used := [][]byte{make([]byte, 64), make([]byte, 64), make([]byte, 64)}, make([]int, 3)
		n, err := mmsg(unix.SYS_RECVMMSG, fd, control, used)
		if err == nil && n != 3 {
			err = fmt.Errorf("%d messages of 3", n)
		}
		for i := range used {
			if err == nil {
				err = take(control[i][:used[i]])
			}
		}
		if err != nil {
			return err
		}
	} else {
		oob := make([]byte, arg.Room)
		_, n, _, _, err := unix.Recvmsg(fd, []byte{0}, oob, unix.MSG_CMSG_CLOEXEC)
		if err == nil {
			err = take(oob[:n])
		}
		if err != nil {
			return err
		}
	}
	return c.Report(out)
}
