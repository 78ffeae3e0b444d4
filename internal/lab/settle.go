// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// aside is a host outside of all worlds, so its traffic is in no tool's rows. It
// exists as long as the process.
var aside = sync.OnceValues(func() (*host, error) {
	h, err := newHost("aside")
	if err == nil {
		err = h.do(h.loopback)
	}
	return h, err
})

// Settle returns when packets that were under way have arrived, and so have the answers to them.
// Each processor takes packets of loopback and veth devices from one queue, in order. So a
// datagram that it sends to itself comes after all packets that waited, and the processor then
// frees the buffers that others have left to it.
func (w *World) Settle() error {
	const answers = 3 // to answers
	h, err := aside()
	if err == nil {
		err = h.do(func() error { return passQueues(answers) })
	}
	if err != nil {
		return fmt.Errorf("lab: settle: %w", err)
	}
	return nil
}

// passQueues sends n datagrams through the queue of each processor. A full queue drops a
// datagram; then passQueues sends another one.
func passQueues(times int) error {
	fd, _, err := Bind(UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	patience := unix.Timeval{Sec: 1}
	self, err := unix.Getsockname(fd)
	if err := errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)); err != nil {
		return err
	}
	sent, got := make([]byte, 1), make([]byte, 1)
	pass := func() (err error) {
		for range 60 {
			sent[0]++
			if err := unix.Sendto(fd, sent, 0, self); err != nil {
				return err
			}
			for got[0] != sent[0] && err == nil { // an earlier one may be late
				_, err = unix.Read(fd, got)
			}
			if !errors.Is(err, unix.EAGAIN) {
				return err
			}
			err = nil
		}
		return fmt.Errorf("a queue is full: %w", ErrLate)
	}
	for range times {
		if err := eachCPU(pass); err != nil {
			return err
		}
	}
	return nil
}

// Grace is Settle, and then waits for the work that the kernel defers by RCU: only then does a
// closed UDP socket free its packets. The kernel waits for that itself (rcu_barrier) before it
// removes a device.
func (w *World) Grace() error {
	h, err := aside()
	if err == nil {
		err = h.do(func() error {
			v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "grace"}, PeerName: "period"}
			if err := netlink.LinkAdd(v); err != nil {
				return err
			}
			return netlink.LinkDel(v)
		})
	}
	if err != nil {
		return fmt.Errorf("lab: grace: %w", err)
	}
	return w.Settle()
}

// Ended waits until no TCP socket is left in a host. A closed socket lives until the peer has
// acknowledged its FIN. A connection in TIME_WAIT has no socket.
func (w *World) Ended(host string) error {
	for deadline := time.Now().Add(w.timeout); ; time.Sleep(time.Millisecond) {
		n, err := w.sockets(host)
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		if n == 0 {
			return w.Settle()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("lab: %w: %s has %d TCP sockets after %v", ErrLate, host, n, w.timeout)
		}
	}
}

// sockets is how many TCP sockets a host has.
func (w *World) sockets(host string) (n int, err error) {
	err = w.Do(host, func() error {
		for file, line := range map[string]string{"sockstat": "TCP: inuse %d", "sockstat6": "TCP6: inuse %d"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + file)
			if errors.Is(err, os.ErrNotExist) && file == "sockstat6" {
				continue // without IPv6
			} else if err != nil {
				return err
			}
			_, text, _ := strings.Cut(string(b), line[:len("TCP")])
			var some int
			if _, err := fmt.Sscanf("TCP"+text, line, &some); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			n += some
		}
		return nil
	})
	return n, err
}
