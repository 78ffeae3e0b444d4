// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Knocks is a process that sends one SYN for each word, and does not wait for an
// answer. It holds its sockets until it is told to end.
type Knocks struct{ *Proc }

const bodyKnock = "knock"

func init() { Register(bodyKnock, knock) }

// knockArg is where to connect to, and what to bind to first; "": nothing.
type knockArg struct {
	Network Network
	Addr    string
	From    string
}

// StartKnocks starts the process in a host. Its sockets are bound to from; "": to nothing.
func StartKnocks(w *World, host, comm string, n Network, addr, from string) (*Knocks, error) {
	p, err := w.Start(host, comm, bodyKnock, knockArg{n, addr, from})
	return &Knocks{p}, err
}

// Knock sends a SYN.
func (k *Knocks) Knock() error {
	var done bool
	return k.Call("knock", &done)
}

// End closes all sockets, and waits for the end of the process.
func (k *Knocks) End() error { return errors.Join(k.Tell("end"), k.Wait()) }

func knock(c *Child) error {
	var a knockArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	sa, err := a.Network.Sockaddr(a.Addr)
	if err != nil {
		return err
	}
	for c.Next() == "knock" {
		fd, err := bound(a.Network, a.From)
		if err != nil {
			return err
		}
		defer Close(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		if err := connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect: %w", err)
		}
		if err := c.Report(true); err != nil {
			return err
		}
	}
	return nil
}
