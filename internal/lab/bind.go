// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Binding is one bind(2) and its expected result.
type Binding struct {
	Name    string        `json:"name"` // for messages
	Network Network       `json:"network"`
	Addr    string        `json:"addr"` // as Network.Sockaddr takes it; port 0 is a free one
	Uring   bool          `json:"uring"`
	Want    syscall.Errno `json:"want"` // 0 is success

	// Options that are set before the bind.
	ReuseAddr, ReusePort, Freebind, Transparent, NoPort, V6Only bool
	Device                                                      string // SO_BINDTODEVICE
}

// Bound is how a Binding ended.
type Bound struct {
	Port  int           `json:"port"`
	Errno syscall.Errno `json:"errno"`
}

// Binds is a process that is ready to bind.
type Binds struct {
	*Proc
	List []Binding
}

const bodyBind = "bind"

func init() { Register(bodyBind, makeBinds) }

// StartBinds starts a process in a host that will bind as listed, one after the
// other. Sockets stay open until all are done.
func StartBinds(w *World, host, comm string, list ...Binding) (*Binds, error) {
	p, err := w.Start(host, comm, bodyBind, list)
	if err != nil {
		return nil, err
	}
	return &Binds{p, list}, nil
}

// Run makes the binds and waits for the process to end. A bind with another
// result than expected is an error.
func (b *Binds) Run() ([]Bound, error) {
	var out []Bound
	if err := b.Call("go", &out); err != nil {
		return nil, err
	}
	errs := []error{b.Wait()}
	for i, o := range out {
		if l := b.List[i]; o.Errno != l.Want {
			errs = append(errs, fmt.Errorf("lab: bind %s %s (%s): %v, want %v", l.Network, l.Addr, l.Name, o.Errno, l.Want))
		}
	}
	return out, errors.Join(errs...)
}

// makeBinds is the body.
func makeBinds(c *Child) error {
	var list []Binding
	if err := c.Arg(&list); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var out []Bound
	for _, b := range list {
		fd, err := Socket(b.Network)
		if err != nil {
			return err
		}
		defer Close(fd)
		err = b.options(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		err = b.bind(fd)
		if errors.Is(err, ErrNotSupported) {
			return err
		}
		o := Bound{Errno: errnoOf(err)}
		o.Port, _ = LocalPort(fd)
		out = append(out, o)
	}
	return c.Report(out)
}

func (b Binding) bind(fd int) error {
	sa, err := b.Network.Sockaddr(b.Addr)
	if err != nil {
		return err
	}
	if !b.Uring {
		return unix.Bind(fd, sa)
	}
	r, err := NewRing(1)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Bind(fd, sa)
}

func (b Binding) options(fd int) error {
	for _, o := range []struct {
		on          bool
		level, name int
	}{
		{b.ReuseAddr, unix.SOL_SOCKET, unix.SO_REUSEADDR},
		{b.ReusePort, unix.SOL_SOCKET, unix.SO_REUSEPORT},
		{b.Freebind, unix.SOL_IP, unix.IP_FREEBIND},
		{b.Transparent, unix.SOL_IP, unix.IP_TRANSPARENT},
		{b.NoPort, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT},
		{b.V6Only, unix.SOL_IPV6, unix.IPV6_V6ONLY},
	} {
		if !o.on {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.level, o.name, 1); err != nil {
			return fmt.Errorf("option %d: %w", o.name, err)
		}
	}
	if b.Device != "" {
		return unix.BindToDevice(fd, b.Device)
	}
	return nil
}
