// SPDX-License-Identifier: Apache-2.0

package so1stbyte

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const bodyReuse = "so1stbyte-reuse"

// reuse connects n UDP sockets and closes them unread. Then as many sockets, at
// the same kernel addresses, receive without ever connecting.
func reuse(n int) (received int) {
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 9}
	for range n {
		if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			unix.Connect(fd, to)
			unix.Close(fd)
		}
	}
	time.Sleep(200 * time.Millisecond) // the kernel frees them after a grace period
	fds := make([]int, 0, n)
	for range n {
		if fd, err := self(); err == nil {
			fds = append(fds, fd)
			received++
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return received
}

// self is a socket that has received what it sent to itself.
func self() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err == nil {
		err = unix.Sendto(fd, []byte("x"), 0, at)
	}
	if err == nil {
		_, _, err = unix.Recvfrom(fd, make([]byte, 8), 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("sending to itself: %w", err)
	}
	return fd, nil
}
