// SPDX-License-Identifier: Apache-2.0

package lab

import "fmt"

// Late is a server that lets connections wait: it listens, and accepts only
// when it is told to.
type Late struct {
	Network Network // default TCP4
	Backlog int     // default 128
	Uring   bool    // accept by io_uring
	Host    string  // default: the world's last
	Comm    string  // default "lab-late"
	Addr    string  // default: the host's address and a free port
}

// Waiting is a Late that listens.
type Waiting struct {
	*Proc
	Addr string
	Port int

	world *World
	host  string
}

const bodyLate = "late"

func init() { Register(bodyLate, lateServer) }

// StartLate starts the server and returns when it listens.
func StartLate(w *World, l Late) (*Waiting, error) {
	setDefault(&l.Network, TCP4)
	setDefault(&l.Backlog, 128)
	setDefault(&l.Comm, "lab-late")
	setDefault(&l.Host, w.hosts[len(w.hosts)-1].name)
	addr := w.Addr(l.Host, l.Network)
	if !addr.IsValid() {
		return nil, fmt.Errorf("lab: %s: %w: IPv6 is off", l.Network, ErrNotSupported)
	}
	setDefault(&l.Addr, l.Network.At(addr, 0))
	p, err := w.Start(l.Host, l.Comm, bodyLate, l)
	if err != nil {
		return nil, err
	}
	x := &Waiting{Proc: p, world: w, host: l.Host}
	if err := p.Expect(&x.Port); err != nil {
		return nil, err
	}
	x.Addr = l.Network.At(addr, x.Port)
	return x, nil
}

// Accept makes the server accept n connections, one after the other, and close
// them at the end.
func (x *Waiting) Accept(n int) error {
	for range n {
		if err := x.Call("accept", new(int)); err != nil {
			return err
		}
	}
	return nil
}

// Queued returns when n TCP connections wait to be accepted. A client's connect
// returns before the server has received the last acknowledgement.
func (x *Waiting) Queued(n int) error {
	return Until(fmt.Sprintf("%d connections wait at port %d", n, x.Port), func() (bool, error) {
		queued, err := x.world.Queued(x.host, x.Port)
		return queued == n, err
	})
}

// End makes the server close everything, and waits for it.
func (x *Waiting) End() error {
	if err := x.Tell("end"); err != nil {
		return err
	}
	return x.Wait()
}

// lateServer is the body.
func lateServer(c *Child) error {
	var l Late
	if err := c.Arg(&l); err != nil {
		return err
	}
	fd, port, err := Listen(l.Network, l.Addr, l.Backlog)
	if err != nil {
		return err
	}
	defer Close(fd)
	k, err := newCaller(l.Uring)
	if err != nil {
		return err
	}
	defer k.close()
	if err := c.Report(port); err != nil {
		return err
	}
	for c.Next() == "accept" {
		conn, err := k.accept(fd)
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		defer Close(conn)
		if err := c.Report(conn); err != nil {
			return err
		}
	}
	return nil
}
