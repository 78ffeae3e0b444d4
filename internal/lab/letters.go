// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Letters is datagrams from one unconnected UDP socket to several peers, in
// turn: one to each, then again.
type Letters struct {
	Network Network // UDP4 or UDP6, which may write to IPv4 peers as ::ffff:a.b.c.d
	To      []string
	Rounds  int
	Size    int
	Call    Call // Sendto or Sendmsg; default Sendto
	Leave   bool // leave the socket open; the end of the process closes it
}

// Sender is a process that is ready to send.
type Sender struct{ *Proc }

const bodyLetters = "letters"

func init() { Register(bodyLetters, lettersBody) }

// StartLetters starts a process in a host that has made its socket.
func StartLetters(w *World, host, comm string, l Letters) (*Sender, error) {
	setDefault(&l.Rounds, 1)
	setDefault(&l.Call, Sendto)
	p, err := w.StartReady(host, comm, bodyLetters, l)
	return &Sender{p}, err
}

// Run sends everything, waits for the process to end, and gives its port.
func (x *Sender) Run() (port int, err error) {
	if err := x.Call("go", &port); err != nil {
		return 0, err
	}
	return port, x.Wait()
}

func lettersBody(c *Child) error {
	var l Letters
	if err := c.Arg(&l); err != nil {
		return err
	}
	fd, err := Socket(l.Network)
	if err != nil {
		return err
	}
	if !l.Leave {
		defer Close(fd)
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	buf := make([]byte, l.Size)
	for range l.Rounds {
		for _, addr := range l.To {
			to, err := l.Network.Sockaddr(addr)
			if err != nil {
				return err
			}
			if l.Call == Sendmsg {
				_, err = unix.SendmsgN(fd, buf, nil, to, 0)
			} else {
				err = unix.Sendto(fd, buf, 0, to)
			}
			if err != nil {
				return fmt.Errorf("%s to %s: %w", l.Call, addr, err)
			}
		}
	}
	port, err := LocalPort(fd)
	if err != nil {
		return err
	}
	return c.Report(port)
}
