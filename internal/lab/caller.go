// SPDX-License-Identifier: Apache-2.0

package lab

import "golang.org/x/sys/unix"

// caller makes the calls of a session: by system calls, or through a ring. A
// caller is used by one thread.
type caller interface {
	connect(fd int, sa unix.Sockaddr) error
	accept(fd int) (int, error)
	sendAll(fd int, b []byte) error
	recvAll(fd int, b []byte) error
	recvEnd(fd int) error
	close()
}

// newCaller makes a caller for one thread.
func newCaller(uring bool) (caller, error) {
	if uring {
		return newRingCaller()
	}
	return plain{}, nil
}

// plain makes system calls.
type plain struct{}

func (plain) connect(fd int, sa unix.Sockaddr) error { return connect(fd, sa) }
func (plain) accept(fd int) (int, error)             { return Accept(fd) }
func (plain) sendAll(fd int, b []byte) error         { return SendAll(fd, b) }
func (plain) recvAll(fd int, b []byte) error         { return RecvAll(fd, b) }
func (plain) recvEnd(fd int) error                   { return RecvEnd(fd) }
func (plain) close()                                 {}
