// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Target is a socket to connect to. Nothing is ever accepted from it.
type Target struct {
	Network Network
	// Addr is where to bind; default: the host's address and a free port, or a
	// path in the world's directory.
	Addr string
	Kind TargetKind
	// Backlog is the second argument of listen; default 128.
	Backlog int
	// GRO makes the kernel hand datagrams of a flow to a UDP socket
	// together.
	GRO bool
}

// TargetKind is how a target treats connects.
type TargetKind string

const (
	// Listening completes connections, which are never accepted.
	Listening TargetKind = ""
	// BoundOnly holds its address without listening: TCP and UNIX connects are
	// refused, and no other process can take the port meanwhile.
	BoundOnly TargetKind = "bound"
	// Silent listens behind a socket filter that drops every packet, as a
	// firewall would: a connect gets no answer until it times out.
	Silent TargetKind = "silent"
)

// Targets is a process that holds targets until it is told to end.
type Targets struct {
	*Proc
	Addrs []string // of the targets, in their order
}

const bodyTargets = "targets"

func init() { Register(bodyTargets, holdTargets) }

// StartTargets starts a process in a host that holds the targets, and returns
// when all can be connected to.
func StartTargets(w *World, host, comm string, targets ...Target) (*Targets, error) {
	for i := range targets {
		setDefault(&targets[i].Backlog, 128)
		if err := targets[i].place(w, host, comm); err != nil {
			return nil, err
		}
	}
	p, err := w.Start(host, comm, bodyTargets, targets)
	if err != nil {
		return nil, err
	}
	t := &Targets{Proc: p}
	return t, p.Expect(&t.Addrs)
}

// place chooses an address where none was given.
func (t *Target) place(w *World, host, name string) error {
	switch addr := w.Addr(host, t.Network); {
	case t.Addr != "":
	case t.Network.Family() == unix.AF_UNIX:
		var err error
		t.Addr, err = w.path(name)
		return err
	case !addr.IsValid():
		return fmt.Errorf("lab: %s: %w: IPv6 is off", t.Network, ErrNotSupported)
	default:
		t.Addr = t.Network.At(addr, 0)
	}
	return nil
}

// Port is the port of target i, 0 for UNIX sockets.
func (t *Targets) Port(i int) int {
	ap, _ := netip.ParseAddrPort(t.Addrs[i])
	return int(ap.Port())
}

// End makes the process close its targets, and waits for it.
func (t *Targets) End() error {
	if err := t.Tell("end"); err != nil {
		return err
	}
	return t.Wait()
}

// Receive returns when the first target has received this many bytes of datagrams. All
// hooks on the way of the packets have run by then.
func (t *Targets) Receive(bytes int) error {
	var done bool
	return t.Call(fmt.Sprint("receive ", bytes), &done)
}

// holdTargets is the body.
func holdTargets(c *Child) error {
	var targets []Target
	if err := c.Arg(&targets); err != nil {
		return err
	}
	var addrs []string
	first := -1
	for _, t := range targets {
		fd, addr, err := t.open()
		if err != nil {
			return err
		}
		defer Close(fd)
		addrs = append(addrs, addr)
		if first < 0 {
			first = fd
		}
	}
	if err := c.Report(addrs); err != nil {
		return err
	}
	for {
		word, bytes := c.Next(), 0
		if word == "end" {
			return nil
		}
		if _, err := fmt.Sscanf(word, "receive %d", &bytes); err != nil {
			return fmt.Errorf("lab: %s was told %q: %w", c.Comm, word, err)
		}
		for buf := make([]byte, 1<<16); bytes > 0; {
			n, err := unix.Read(first, buf)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("receive: %w", err)
			}
			bytes -= max(n, 0)
		}
		if err := c.Report(true); err != nil {
			return err
		}
	}
}

// open makes the socket and returns its address with the port.
func (t Target) open() (int, string, error) {
	fd, port, err := Bind(t.Network, t.Addr)
	if err != nil {
		return -1, "", err
	}
	if t.GRO {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
			return -1, "", unsupported("UDP_GRO", err)
		}
	}
	if t.Kind == Silent {
		if err := Deafen(fd); err != nil {
			return -1, "", err
		}
	}
	if t.Kind != BoundOnly && t.Network.listens() {
		if err := listen(fd, t.Backlog); err != nil {
			return -1, "", err
		}
	}
	if ap, err := netip.ParseAddrPort(t.Addr); err == nil {
		return fd, t.Network.At(ap.Addr(), port), nil
	}
	return fd, t.Addr, nil
}

// Deafen makes the kernel drop every packet for a socket, by a filter that keeps 0 bytes.
func Deafen(fd int) error {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]})
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return nil
}
