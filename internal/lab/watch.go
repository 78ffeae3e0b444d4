// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// watcher is a netlink socket that is notified of changes in the namespace of the
// thread that made it. The notifications are not parsed: they only say when to
// check again.
type watcher int

// watch listens to routing netlink groups. Call it before the first look, so
// that no change falls between.
func watch(groups ...int) (watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("watch netlink: %w", err)
	}
	// Unbound it would have the kernel's own address, to which nothing is sent.
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("watch netlink: %w", err)
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("watch netlink group %d: %w", g, err)
		}
	}
	// Far more than any kernel needs: an end for a world that never settles.
	patience := unix.Timeval{Sec: 20}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return watcher(fd), nil
}

// until asks ready at once and after each change.
func (w watcher) until(what string, ready func() (bool, error)) error {
	buf := make([]byte, 16<<10)
	start := time.Now()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		_, err := unix.Read(int(w), buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
		case err != nil:
			return fmt.Errorf("wait for %s: %w after %v", what, err, time.Since(start))
		}
	}
}

func (w watcher) Close() error { return unix.Close(int(w)) }
