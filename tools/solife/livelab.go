// SPDX-License-Identifier: Apache-2.0

package solife

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// how says by what means the last descriptor of a session outlives the first
// one.
type how string

const (
	dup     how = "dup"     // a second descriptor
	forked  how = "forked"  // in a forked process, which writes and exits
	killed  how = "killed"  // the same, which dies by SIGKILL
	passed  how = "passed"  // under way in a message
	dropped how = "dropped" // the same, which nobody ever reads
)

// holding is a session. One end is closed at once, the other one late.
type holding struct {
	Network lab.Network
	Addr    string
	How     how
}

// held is the result: the process that wrote, the least time that the late end
// was open, and the greatest time that the other end was.
type held struct {
	Writer    int
	NS, Early int64
}

const (
	bodyHold = "solife-hold"
	message  = 101 // bytes, from the late end to the other
	linger   = 30 * time.Millisecond
)

func hold(c *lab.Child) error {
	var h holding
	if err := c.Arg(&h); err != nil {
		return err
	}
	begin := time.Now()
	late, early, err := ends(h.Network, h.Addr)
	if err != nil {
		return err
	}
	start := time.Now()
	out := held{Writer: os.Getpid()}
	var release func() error
	b := make([]byte, message)
	if h.How == forked || h.How == killed {
		out.Writer, release, err = fork(late, early, h.How == killed)
	} else {
		_, err = unix.Write(late, b)
	}
	if err != nil {
		return err
	}
	if n, err := unix.Read(early, b); n != message || err != nil {
		return fmt.Errorf("read %d: %w", n, err)
	}
	if err := unix.Close(early); err != nil {
		return err
	}
	out.Early = int64(time.Since(begin))
	if release == nil {
		if release, err = keep(h.How, late); err != nil {
			return fmt.Errorf("%s: %w", h.How, err)
		}
	}
	if err := unix.Close(late); err != nil {
		return err
	}
	time.Sleep(linger)
	out.NS = int64(time.Since(start))
	if err := release(); err != nil {
		return fmt.Errorf("%s: %w", h.How, err)
	}
	return c.Report(out)
}

// ends are the two sockets of a session.
func ends(n lab.Network, addr string) (late, early int, err error) {
	l, port, err := lab.Listen(n, addr, 1)
	if err != nil {
		return -1, -1, err
	}
	if n.Family() != unix.AF_UNIX {
		sa, err := unix.Getsockname(l)
		if err != nil {
			return -1, -1, err
		}
		switch a := sa.(type) {
		case *unix.SockaddrInet4:
			addr = fmt.Sprintf("127.0.0.1:%d", port)
		case *unix.SockaddrInet6:
			addr = fmt.Sprintf("[::1]:%d", a.Port)
		}
	}
	if late, err = lab.Connect(n, addr); err != nil {
		return -1, -1, err
	}
	if n == lab.UDP4 || n == lab.UDP6 || n == lab.UnixDgram {
		return late, l, nil
	}
	if early, err = lab.Accept(l); err != nil {
		return -1, -1, err
	}
	return late, early, lab.Close(l)
}

// keep keeps fd open by the given means until release.
func keep(h how, fd int) (release func() error, err error) {
	if h == dup {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return func() error { return unix.Close(other) }, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(fd), nil, 0); err != nil {
		return nil, err
	}
	return func() error {
		if h == passed {
			oob := make([]byte, 64)
			_, n, _, _, err := unix.Recvmsg(pair[1], []byte{0}, oob, 0)
			if err != nil {
				return err
			}
			msgs, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil {
				return err
			}
			fds, err := unix.ParseUnixRights(&msgs[0])
			if err != nil {
				return err
			}
			if err := unix.Close(fds[0]); err != nil {
				return err
			}
		}
		for _, fd := range pair {
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// fork makes a process with all our descriptors but other, which writes to fd and
// lives until it is released.
func fork(fd, other int, kill bool) (pid int, release func() error, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, nil, err
	}
	id, e := forkAndWrite(uintptr(fd), uintptr(other), uintptr(p[0]), uintptr(p[1]))
	if e != 0 {
		return 0, nil, e
	}
	pid = int(id)
	unix.Close(p[0])
	return pid, func() error {
		if kill {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				return err
			}
		}
		unix.Close(p[1])
		_, err := unix.Wait4(pid, nil, 0, nil)
		return err
	}, nil
}

var letter [message]byte

// forkAndWrite forks. The child, in which Go's runtime does not work, writes to
// fd, reads until the pipe ends, and exits.
//
//go:norace
//go:noinline
func forkAndWrite(fd, other, r, w uintptr) (uintptr, syscall.Errno) {
	pid, _, e := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || e != 0 {
		return pid, e
	}
	syscall.RawSyscall(syscall.SYS_CLOSE, w, 0, 0)
	syscall.RawSyscall(syscall.SYS_CLOSE, other, 0, 0)
	syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&letter)), message)
	syscall.RawSyscall(syscall.SYS_READ, r, uintptr(unsafe.Pointer(&letter)), 1)
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// sending describes threads that send to receivers of their own through UNIX
// datagram sockets that are neither bound nor connected. The first event of such
// a socket is a send.
type sending struct {
	Threads int
	Sockets int  // one after the other, of each thread
	Shared  bool // all threads share each socket and send at the same time
}

const (
	bodySend = "solife-send"
	receiver = "@solife-receiver"
)

func send(c *lab.Child) error {
	var s sending
	if err := c.Arg(&s); err != nil {
		return err
	}
	socket := func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) }
	to := make([]unix.Sockaddr, s.Threads)
	in := make([]int, s.Threads)
	for i := range in {
		var err error
		if in[i], err = socket(); err != nil {
			return err
		}
		to[i] = &unix.SockaddrUnix{Name: fmt.Sprint(receiver, i)}
		if err := unix.Bind(in[i], to[i]); err != nil {
			return err
		}
	}
	deliver := func(thread, fd int) error {
		b := make([]byte, message)
		if err := unix.Sendto(fd, b, 0, to[thread]); err != nil {
			return err
		}
		_, err := unix.Read(in[thread], b)
		return err
	}
	rounds := 1
	if s.Shared {
		rounds = s.Sockets
	}
	for range rounds {
		shared, err := socket()
		if err != nil {
			return err
		}
		if err := together(s.Threads, func(thread int) error {
			if s.Shared {
				return deliver(thread, shared)
			}
			for range s.Sockets {
				fd, err := socket()
				if err != nil {
					return err
				}
				if err := deliver(thread, fd); err != nil {
					return err
				}
				if err := unix.Close(fd); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if err := unix.Close(shared); err != nil {
			return err
		}
	}
	for _, fd := range in {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// together makes n threads start at the same time.
func together(n int, do func(thread int) error) error {
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return errors.Join(errs...)
}
