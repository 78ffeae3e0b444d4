// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// line is a load's connection, and the buffers and files that its calls need.
type line struct {
	Load
	w, r int       // the sockets
	born time.Time // when both were there
	to   unix.Sockaddr
	out  []byte // the message to write
	in   []byte // where to read it, with room to notice one that is too long
	file int    // for Sendfile: a memory file that holds the message; 0 is none
	pipe [2]int // for Splice
	ring *Ring  // for the calls of io_uring
}

// newLine opens a connection; addr is where Internet sockets are bound.
func newLine(l Load, addr string) (*line, error) {
	x := &line{Load: l, out: make([]byte, l.Size), in: make([]byte, l.Size+1)}
	var err error
	switch {
	case l.Network.Family() == unix.AF_UNIX:
		err = x.openUnix()
	case l.Network.Stream():
		err = x.openStream(addr)
	default:
		err = x.openDatagram(addr)
	}
	if err != nil {
		return nil, err
	}
	if l.Network.Stream() {
		// A read then returns when the whole message is there, not part of it.
		x.in = x.in[:l.Size]
		if err := unix.SetsockoptInt(x.r, unix.SOL_SOCKET, unix.SO_RCVLOWAT, l.Size); err != nil && l.Network.tcp() {
			return nil, fmt.Errorf("SO_RCVLOWAT: %w", err)
		}
	}
	x.born = time.Now()
	return x, x.tools()
}

// tools opens the files that some calls need.
func (x *line) tools() (err error) {
	for _, c := range []Call{x.Write, x.Read} {
		switch c {
		case Sendfile:
			x.file, err = unix.MemfdCreate("lab", unix.MFD_CLOEXEC)
		case Splice:
			if x.pipe[1] == 0 {
				err = unix.Pipe2(x.pipe[:], unix.O_CLOEXEC)
			}
		case UringSend, UringWrite, UringRecv, UringRead:
			if x.ring == nil {
				x.ring, err = NewRing(1)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

func (x *line) openUnix() error {
	k := networks[x.Network]
	p, err := unix.Socketpair(k.family, k.kind|unix.SOCK_CLOEXEC, 0)
	note("socketpair", 0, 1, err)
	x.w, x.r = p[0], p[1]
	return err
}

func (x *line) openStream(addr string) error {
	l, err := x.reach(Listen(x.Network, addr, 1))
	if err != nil {
		return err
	}
	defer Close(l)
	if x.w, err = Socket(x.Network); err != nil {
		return err
	}
	// Without it a small message waits until the one before it is acknowledged.
	if err := unix.SetsockoptInt(x.w, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil && x.Network.tcp() {
		return err
	}
	if err := connect(x.w, x.to); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	x.r, err = Accept(l)
	return err
}

// openDatagram leaves the writer unconnected if its calls name the peer.
func (x *line) openDatagram(addr string) error {
	var err error
	if x.r, err = x.reach(Bind(x.Network, addr)); err != nil {
		return err
	}
	if x.Write == Sendto {
		x.w, _, err = Bind(x.Network, addr)
		return err
	}
	if x.w, err = Socket(x.Network); err != nil {
		return err
	}
	return connect(x.w, x.to)
}

// reach records the address of a socket that was just bound.
func (x *line) reach(fd, _ int, err error) (int, error) {
	if err == nil {
		x.to, err = unix.Getsockname(fd)
	}
	return fd, err
}

func (x *line) ends() Ends {
	e := Ends{WriterFD: x.w, ReaderFD: x.r}
	e.WriterPort, _ = LocalPort(x.w)
	e.ReaderPort, _ = LocalPort(x.r)
	return e
}

// run does the load and closes the connection.
func (x *line) run() (LoadResult, error) {
	var res LoadResult
	for i := 0; i < x.Count; i += x.Batch {
		if err := x.exchange(byte(i)); err != nil {
			return res, fmt.Errorf("message %d: %w", i, err)
		}
	}
	for range x.Again {
		if _, err := recv(x.r, x.in, unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			return res, fmt.Errorf("a receive with nothing to find: %v", err)
		}
	}
	if x.Network.tcp() {
		w, err := unix.GetsockoptTCPInfo(x.w, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return res, fmt.Errorf("TCP_INFO: %w", err)
		}
		r, err := unix.GetsockoptTCPInfo(x.r, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return res, fmt.Errorf("TCP_INFO: %w", err)
		}
		res.BytesSent, res.BytesReceived = int64(w.Bytes_sent-w.Bytes_retrans), int64(r.Bytes_received)
	}
	if x.Broken > 0 {
		if err := unix.Shutdown(x.w, unix.SHUT_WR); err != nil {
			return res, fmt.Errorf("shutdown: %w", err)
		}
	}
	for range x.Broken {
		n, err := unix.Write(x.w, []byte("x"))
		note("write", n, 1, err)
		if !errors.Is(err, unix.EPIPE) {
			return res, fmt.Errorf("a write after shutdown: %v", err)
		}
	}
	err := x.close()
	res.NS = int64(time.Since(x.born))
	return res, err
}

func (x *line) close() error {
	errs := []error{Close(x.w), Close(x.r)}
	if x.ring != nil {
		errs = append(errs, x.ring.Close())
	}
	for _, fd := range []int{x.file, x.pipe[0], x.pipe[1]} {
		if fd != 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// exchange writes a batch of messages and reads them.
func (x *line) exchange(mark byte) error {
	for i := range x.out {
		x.out[i] = mark + byte(i)
	}
	writes, reads := x.Batch, x.Batch
	if x.Write == Sendmmsg {
		writes = 1
	}
	if x.Read == Recvmmsg {
		reads = 1
	}
	for range writes {
		if err := writers[x.Write](x); err != nil {
			return fmt.Errorf("%s: %w", x.Write, err)
		}
	}
	// The kernel may deliver a message late. Then the read begins with an
	// empty buffer.
	if err := readable(x.r); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	for range reads {
		for range x.Peek {
			if _, err := recvAs("peek", x.r, x.in, unix.MSG_PEEK); err != nil {
				return fmt.Errorf("peek: %w", err)
			}
		}
		clear(x.in)
		if err := readers[x.Read](x); err != nil {
			return fmt.Errorf("%s: %w", x.Read, err)
		}
	}
	return nil
}
