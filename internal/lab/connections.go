// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// A connection is a TCP socket as /proc/net/tcp shows it.
type connection struct {
	local, remote int // ports
	state         string
	queued        int // for a listener: connections that nobody has accepted yet
}

const finWait1, timeWait, lastACK, listens, closing = "04", "06", "09", "0A", "0B"

// open reports whether the connection can still send something by itself.
func (c connection) open() bool { return c.state != timeWait && c.state != listens }

// ending reports whether the connection waits for the ACK of its FIN.
func (c connection) ending() bool {
	return c.state == finWait1 || c.state == lastACK || c.state == closing
}

// connections lists the TCP sockets of a host.
func (w *World) connections(host string) (all []connection, err error) {
	err = w.Do(host, func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if errors.Is(err, fs.ErrNotExist) { // IPv6 is off
				continue
			} else if err != nil {
				return err
			}
			first := true
			for line := range strings.Lines(string(b)) {
				if first {
					first = false
					continue
				}
				f := strings.Fields(line) // number, local and remote address, state, queues
				c := connection{state: f[3]}
				for i, n := range []*int{1: &c.local, 2: &c.remote, 4: &c.queued} {
					if n == nil {
						continue
					}
					v, err := strconv.ParseUint(f[i][strings.LastIndex(f[i], ":")+1:], 16, 32)
					if err != nil {
						return fmt.Errorf("/proc/net/%s: %q: %w", name, line, err)
					}
					*n = int(v)
				}
				all = append(all, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return all, nil
}

// Closed waits until no TCP connection of any host is open and no segment is under way. Then no
// timer retransmits anything.
func (w *World) Closed() error {
	for _, h := range w.Hosts() {
		if err := w.closed(h, func(*connection) bool { return true }); err != nil {
			return err
		}
	}
	return w.Quiet()
}

// AwaitClosed returns when a host has no open connection from or to a port. If this is
// true at both ends, no segment is under way.
func (w *World) AwaitClosed(host string, port int) error {
	return w.closed(host, func(c *connection) bool { return c.local == port || c.remote == port })
}

// closed waits until no chosen connection of a host is open.
func (w *World) closed(host string, meant func(*connection) bool) error {
	return Until(fmt.Sprintf("the connections of %s are closed", host), func() (bool, error) {
		all, err := w.connections(host)
		for _, c := range all {
			if c.open() && meant(&c) {
				return false, nil
			}
		}
		return true, err
	})
}

// Queued is the number of connections that wait to be accepted at a port of a
// host.
func (w *World) Queued(host string, port int) (n int, err error) {
	all, err := w.connections(host)
	for _, c := range all {
		if c.state == listens && c.local == port {
			n += c.queued
		}
	}
	return n, err
}

// Until waits for a condition, for as long as a slow machine may take.
func Until(what string, is func() (bool, error)) error {
	for late := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if ok, err := is(); ok || err != nil {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("lab: waiting until %s: %w", what, ErrLate)
		}
	}
}
