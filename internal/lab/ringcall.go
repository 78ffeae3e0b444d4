// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Connect connects a socket through the ring.
func (r *Ring) Connect(fd int, sa unix.Sockaddr) error {
	b, err := rawSockaddr(sa)
	if err != nil {
		return err
	}
	_, err = r.one(RingOp{Code: RingConnect, FD: fd, Addr: b, Off: uint64(len(b)), noLen: true})
	return err
}

// Accept accepts a connection, without room for the peer's address.
func (r *Ring) Accept(fd int) (int, error) {
	return r.one(RingOp{Code: RingAccept, FD: fd, Flags: unix.SOCK_CLOEXEC})
}

// Send sends b; MSG_ flags as in send(2).
func (r *Ring) Send(fd int, b []byte, flags int) (int, error) {
	return r.one(RingOp{Code: RingSend, FD: fd, Addr: b, Flags: uint32(flags)})
}

// Recv receives into b; MSG_ flags as in recv(2).
func (r *Ring) Recv(fd int, b []byte, flags int) (int, error) {
	return r.one(RingOp{Code: RingRecv, FD: fd, Addr: b, Flags: uint32(flags)})
}

// Read is read(2) through the ring.
func (r *Ring) Read(fd int, b []byte) (int, error) {
	return r.one(RingOp{Code: RingRead, FD: fd, Addr: b})
}

// Write is write(2) through the ring.
func (r *Ring) Write(fd int, b []byte) (int, error) {
	return r.one(RingOp{Code: RingWrite, FD: fd, Addr: b})
}

// Readv is readv(2) through the ring, into one buffer.
func (r *Ring) Readv(fd int, b []byte) (int, error) { return r.vector(RingReadv, fd, b) }

// Writev is writev(2) through the ring, from one buffer.
func (r *Ring) Writev(fd int, b []byte) (int, error) { return r.vector(RingWritev, fd, b) }

func (r *Ring) vector(code RingCode, fd int, b []byte) (int, error) {
	v := &unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	n, err := r.one(RingOp{Code: code, FD: fd, Addr: unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)), Len: 1})
	runtime.KeepAlive(v)
	return n, err
}

// Socket makes a socket (5.19).
func (r *Ring) Socket(n Network) (int, error) {
	k := networks[n]
	return r.one(RingOp{Code: RingSocket, FD: k.family, Off: uint64(k.kind | unix.SOCK_CLOEXEC), Len: uint32(k.proto)})
}

// Bind binds a socket (6.11).
func (r *Ring) Bind(fd int, sa unix.Sockaddr) error {
	b, err := rawSockaddr(sa)
	if err != nil {
		return err
	}
	_, err = r.one(RingOp{Code: RingBind, FD: fd, Addr: b, Off: uint64(len(b)), noLen: true})
	return err
}

// Listen listens (6.11).
func (r *Ring) Listen(fd, backlog int) error {
	_, err := r.one(RingOp{Code: RingListen, FD: fd, Len: uint32(backlog)})
	return err
}

// rawSockaddr is an address as the kernel reads it.
func rawSockaddr(sa unix.Sockaddr) ([]byte, error) {
	family := func(f uint16) []byte { return binary.NativeEndian.AppendUint16(nil, f) }
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		b := binary.BigEndian.AppendUint16(family(unix.AF_INET), uint16(sa.Port))
		b = append(b, sa.Addr[:]...)
		return append(b, make([]byte, 8)...), nil
	case *unix.SockaddrInet6:
		b := binary.BigEndian.AppendUint16(family(unix.AF_INET6), uint16(sa.Port))
		b = binary.BigEndian.AppendUint32(b, 0) // flow label
		b = append(b, sa.Addr[:]...)
		return binary.NativeEndian.AppendUint32(b, sa.ZoneId), nil
	case *unix.SockaddrUnix:
		b := append(family(unix.AF_UNIX), sa.Name...)
		if len(sa.Name) > 0 && sa.Name[0] == '@' {
			b[2] = 0
			return b, nil
		}
		return append(b, 0), nil
	}
	return nil, fmt.Errorf("address of type %T", sa)
}

// ringCaller makes a session's calls through a ring.
type ringCaller struct{ *Ring }

func newRingCaller() (caller, error) {
	r, err := NewRing(4)
	if err != nil {
		return nil, err
	}
	return ringCaller{r}, nil
}

func (r ringCaller) connect(fd int, sa unix.Sockaddr) error { return r.Connect(fd, sa) }
func (r ringCaller) accept(fd int) (int, error)             { return r.Accept(fd) }
func (r ringCaller) close()                                 { r.Close() }

func (r ringCaller) sendAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := r.Send(fd, b, unix.MSG_WAITALL)
		if err != nil {
			return fmt.Errorf("io_uring send: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// recvAll may need several receives: rings heed MSG_WAITALL only since 5.18.
func (r ringCaller) recvAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := r.Recv(fd, b, unix.MSG_WAITALL)
		if err != nil {
			return fmt.Errorf("io_uring recv: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("io_uring recv: the peer ended %d bytes early", len(b))
		}
		b = b[n:]
	}
	return nil
}

func (r ringCaller) recvEnd(fd int) error {
	n, err := r.Recv(fd, make([]byte, 1), 0)
	if err == nil && n > 0 {
		err = errors.New("io_uring recv: data where the peer's end was expected")
	}
	return err
}
