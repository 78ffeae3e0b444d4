// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Refused is a process with a connected UDP socket. It is ready to send
// datagrams to a port without a socket, and to read each returned datagram from
// its error queue.
type Refused struct{ *Proc }

const bodyRefused = "refused"

// StartRefused starts the process, for count datagrams of size bytes.
func StartRefused(w *World, comm string, count, size int) (*Refused, error) {
	p, err := w.StartReady("", comm, bodyRefused, []int{count, size})
	return &Refused{p}, err
}

// Run makes the socket, sends, reads the errors, and waits for the process to end.
func (r *Refused) Run() error {
	var done bool
	if err := r.Call("go", &done); err != nil {
		return err
	}
	return r.Wait()
}

func refusedBody(c *Child) error {
	var n []int
	if err := c.Arg(&n); err != nil {
		return err
	}
	free, port, err := Bind(UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	Close(free)
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	// On one processor an error is in the queue and in the socket before the next
	// call. An error that is only in the socket would be returned by the next call.
	if _, err := Pin(0); err != nil {
		return err
	}
	fd, err := Socket(UDP4)
	if err != nil {
		return err
	}
	defer Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	buf, oob := make([]byte, n[1]), make([]byte, 512)
	for range n[0] {
		if _, err := unix.Write(fd, buf); err != nil {
			return err
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, 60000); err != nil {
			return err
		}
		got, _, _, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_ERRQUEUE)
		if err != nil || got != n[1] {
			return fmt.Errorf("%d bytes from the error queue, want %d: %w", got, n[1], err)
		}
	}
	return c.Report(true)
}
