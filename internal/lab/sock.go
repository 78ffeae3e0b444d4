// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The helpers below are for bodies. Each makes the blocking system call of its
// name and counts it in the child's [Tally], to compare with a tool's rows.

// Socket makes a socket. A network that the kernel lacks is ErrNotSupported.
func Socket(n Network) (int, error) {
	k, ok := networks[n]
	if !ok {
		return -1, fmt.Errorf("no network is called %q", n)
	}
	fd, err := unix.Socket(k.family, k.kind|unix.SOCK_CLOEXEC, k.proto)
	note("socket", 0, 1, err)
	if err != nil {
		return -1, unsupported("socket "+string(n), err)
	}
	return fd, nil
}

// Bind makes a socket and binds it, with SO_REUSEADDR for TCP, and gives the
// port that it got.
func Bind(n Network, addr string) (fd, port int, err error) {
	sa, err := n.Sockaddr(addr)
	if err != nil {
		return -1, 0, err
	}
	if fd, err = Socket(n); err != nil {
		return -1, 0, err
	}
	if n.listens() && n.Family() != unix.AF_UNIX {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
		note("bind", 0, 1, err)
	}
	if err == nil {
		port, err = LocalPort(fd)
	}
	if err != nil {
		Close(fd)
		return -1, 0, fmt.Errorf("bind %s %s: %w", n, addr, err)
	}
	return fd, port, nil
}

// bound is a socket that is bound to addr; "": not bound.
func bound(n Network, addr string) (fd int, err error) {
	if addr == "" {
		return Socket(n)
	}
	fd, _, err = Bind(n, addr)
	return fd, err
}

// Listen binds a socket and listens; sockets of datagrams are only bound.
func Listen(n Network, addr string, backlog int) (fd, port int, err error) {
	fd, port, err = Bind(n, addr)
	if err != nil || !n.listens() {
		return fd, port, err
	}
	if err := listen(fd, backlog); err != nil {
		Close(fd)
		return -1, 0, fmt.Errorf("%s %s: %w", n, addr, err)
	}
	return fd, port, nil
}

func listen(fd, backlog int) error {
	err := unix.Listen(fd, backlog)
	note("listen", 0, 1, err)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// Accept accepts a connection without room for the peer's address.
func Accept(fd int) (int, error) {
	for {
		r, _, e := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
		if e == 0 {
			note("accept4", 0, 1, nil)
			return int(r), nil
		}
		note("accept4", 0, 0, e)
		if e != unix.EINTR {
			return -1, e
		}
	}
}

// Connect makes a socket and connects it, waiting for the outcome.
func Connect(n Network, addr string) (int, error) {
	sa, err := n.Sockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := Socket(n)
	if err != nil {
		return -1, err
	}
	if err := connect(fd, sa); err != nil {
		Close(fd)
		return -1, err
	}
	return fd, nil
}

func connect(fd int, sa unix.Sockaddr) error {
	err := unix.Connect(fd, sa)
	note("connect", 0, 1, err)
	return err
}

// ConnectNonblock makes a non-blocking socket, connects it, polls until the
// connect has ended, and returns SO_ERROR. The socket stays non-blocking.
func ConnectNonblock(n Network, addr string) (int, error) {
	sa, err := n.Sockaddr(addr)
	if err != nil {
		return -1, err
	}
	fd, err := Socket(n)
	if err != nil {
		return -1, err
	}
	if err = unix.SetNonblock(fd, true); err == nil {
		err = connect(fd, sa)
	}
	if errors.Is(err, unix.EINPROGRESS) {
		err = connected(fd)
	}
	if err != nil {
		Close(fd)
		return -1, err
	}
	return fd, nil
}

// connected waits for the end of a connect that is in progress, and returns
// SO_ERROR.
func connected(fd int) error {
	if err := ended(fd); err != nil {
		return err
	}
	e, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && e != 0 {
		err = unix.Errno(e)
	}
	return err
}

// ended waits for the end of a connect that is in progress.
func ended(fd int) error { return writable(fd) }

// writable waits until there is room to send, or the socket has an error.
func writable(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		_, err := unix.Poll(p, -1)
		note("poll", 0, 1, err)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// SendAll writes b by one write(2), or by several if the kernel takes less at a
// time, which does not happen with a blocking socket.
func SendAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		note("write", n, 1, err)
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// sendPolled writes b without ever blocking in a write: when there is no room it calls
// full, and waits in poll(2).
func sendPolled(fd int, b []byte, full func()) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_DONTWAIT)
		note("sendmsg", n, 1, err)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("sendmsg: %w", err)
		}
		if b = b[max(n, 0):]; len(b) == 0 {
			return nil
		}
		full()
		if err := writable(fd); err != nil {
			return err
		}
	}
	return nil
}

// RecvAll fills b by one recvfrom(2) with MSG_WAITALL, or by several if a signal of
// the runtime ends one early. It is an error if the peer closes before b is full.
func RecvAll(fd int, b []byte) error {
	for done := 0; done < len(b); {
		n, err := recv(fd, b[done:], unix.MSG_WAITALL)
		switch {
		case err != nil:
			return fmt.Errorf("recv: %w", err)
		case n == 0:
			return fmt.Errorf("recv: the peer ended after %d of %d bytes", done, len(b))
		}
		done += n
	}
	return nil
}

// RecvEnd waits until the peer closes: a receive of 0 bytes, or ECONNRESET,
// which it returns. Data are an error.
func RecvEnd(fd int) error {
	n, err := recv(fd, make([]byte, 1), 0)
	if err == nil && n > 0 {
		err = errors.New("recv: data where the peer's end was expected")
	}
	return err
}

// recv is recvfrom(2) without room for the sender's address.
func recv(fd int, b []byte, flags int) (int, error) { return recvAs("recvfrom", fd, b, flags) }

// recvAs is recv under another name in the tally.
func recvAs(name string, fd int, b []byte, flags int) (int, error) {
	var p unsafe.Pointer
	if len(b) > 0 {
		p = unsafe.Pointer(&b[0])
	}
	for {
		r, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(len(b)), uintptr(flags), 0, 0)
		if e == 0 {
			note(name, int(r), 1, nil)
			return int(r), nil
		}
		note(name, 0, 0, e)
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// Close closes a socket.
func Close(fd int) error {
	err := unix.Close(fd)
	note("close", 0, 1, err)
	return err
}

// Reset closes a TCP socket by a RST, as SO_LINGER 0 does.
func Reset(fd int) error {
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		Close(fd)
		return err
	}
	return Close(fd)
}

// LocalPort is the port that a socket is bound to, 0 for UNIX sockets.
func LocalPort(fd int) (int, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	return portOf(sa), nil
}
