// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// tcpSocket is a line of /proc/net/tcp or tcp6.
type tcpSocket struct {
	local, remote int // ports
	state         int
	queued        int // bytes to read; of a listener: connections to accept
}

// States in that table.
const (
	tcpTimeWait = 6
	tcpListen   = 10
)

func (s tcpSocket) open() bool { return s.state != tcpTimeWait && s.state != tcpListen }

// tcpSockets reads the table of a host.
func (w *World) tcpSockets(host string) (all []tcpSocket, err error) {
	err = w.Do(host, func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if os.IsNotExist(err) {
				continue
			} else if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				f := strings.Fields(line) // number, local and remote address, state, queues
				if f[3] == "st" {
					continue
				}
				var s tcpSocket
				var addr string
				ends := strings.NewReplacer(":", " ").Replace(strings.Join(f[1:5], " "))
				if _, err := fmt.Sscanf(ends, "%s %x %s %x %x %s %x", &addr, &s.local, &addr, &s.remote, &s.state, &addr, &s.queued); err != nil {
					return fmt.Errorf("%s: %q: %w", name, line, err)
				}
				all = append(all, s)
			}
		}
		return nil
	})
	return all, err
}

// awaitTCP returns when the table of a host is as done says.
func (w *World) awaitTCP(host, what string, done func([]tcpSocket) bool) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		all, err := w.tcpSockets(host)
		if err != nil || done(all) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("lab: %s: %w", what, ErrLate)
}

// AwaitClosed returns when a host has no open connection from or to a port. If that is so
// at both ends, every segment has come to its end.
func (w *World) AwaitClosed(host string, port int) error {
	return w.awaitTCP(host, fmt.Sprintf("no connection of port %d", port), func(all []tcpSocket) bool {
		return !slices.ContainsFunc(all, func(s tcpSocket) bool { return (s.local == port || s.remote == port) && s.open() })
	})
}
