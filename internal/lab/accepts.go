// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Accepted is one accept and how it ended.
type Accepted struct {
	Name     string        `json:"name"` // for messages: "not a socket"
	Network  Network       `json:"network"`
	Errno    syscall.Errno `json:"errno"` // 0 is success
	FD       int           `json:"fd"`
	Port     int           `json:"port"`      // of the listener
	PeerPort int           `json:"peer_port"` // of a success
}

// Accepts is a process that is ready to make accepts with every result.
type Accepts struct{ *Proc }

// The names of the two ends of the UNIX connection that [Accepts] makes.
const (
	AcceptsPath = "@lab-accepts"
	CallerPath  = "@lab-caller"
)

const bodyAccepts = "accepts"

func init() { Register(bodyAccepts, doAccepts) }

// StartAccepts starts a process in a host that will connect to itself and
// accept. Some accepts succeed, one of them with descriptor 0. Others fail,
// with every error that can be provoked.
func StartAccepts(w *World, host, comm string) (*Accepts, error) {
	p, err := w.StartReady(host, comm, bodyAccepts, nil)
	return &Accepts{p}, err
}

// Run makes the accepts and waits for the process to end.
func (a *Accepts) Run() ([]Accepted, error) {
	var out []Accepted
	if err := a.Call("go", &out); err != nil {
		return nil, err
	}
	return out, a.Wait()
}

func doAccepts(c *Child) error {
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	a := &accepts{}
	for _, step := range []func() error{
		func() error { return a.call("ipv4", TCP4, "127.0.0.1:0") },
		func() error { return a.call("ipv6", TCP6, "[::1]:0") },
		func() error { return a.call("unix", Unix, AcceptsPath) },
		func() error { return a.descriptor0("descriptor 0") },
		a.failures,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return c.Report(a.out)
}

type accepts struct{ out []Accepted }

// note records an accept and closes the accepted socket.
func (a *accepts) note(name string, n Network, port, fd int, err error) {
	o := Accepted{Name: name, Network: n, Errno: errnoOf(err), FD: fd, Port: port}
	if err == nil {
		if sa, err := unix.Getpeername(fd); err == nil {
			o.PeerPort = portOf(sa)
		}
		Close(fd)
	}
	a.out = append(a.out, o)
}

// call listens, connects and accepts.
func (a *accepts) call(name string, n Network, addr string) error {
	l, port, caller, err := dial(n, addr)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer Close(l)
	defer Close(caller)
	fd, err := Accept(l)
	a.note(name, n, port, fd, err)
	return nil
}

// dial listens at addr and connects to it. It returns a listener with one
// connection to accept.
func dial(n Network, addr string) (listener, port, caller int, err error) {
	listener, port, err = Listen(n, addr, 5)
	if err != nil {
		return -1, 0, -1, err
	}
	caller, err = Socket(n)
	if err == nil && n == Unix {
		err = unix.Bind(caller, &unix.SockaddrUnix{Name: CallerPath})
	}
	var sa unix.Sockaddr
	if err == nil {
		sa, err = unix.Getsockname(listener)
	}
	if err == nil {
		err = connect(caller, sa)
	}
	if err != nil {
		Close(listener)
		return -1, 0, -1, err
	}
	return listener, port, caller, nil
}

// descriptor0 accepts while standard input is closed, and restores it
// afterwards.
func (a *accepts) descriptor0(name string) error {
	l, port, caller, err := dial(TCP4, "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer Close(l)
	defer Close(caller)
	in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return err
	}
	unix.Close(0)
	fd, err := Accept(l)
	a.note(name, TCP4, port, fd, err)
	if err := unix.Dup3(in, 0, 0); err != nil {
		return err
	}
	return unix.Close(in)
}

// failures makes accepts that cannot succeed.
func (a *accepts) failures() error {
	fail := func(name string, n Network, fd int) {
		port, _ := LocalPort(fd)
		got, err := Accept(fd)
		a.note(name, n, port, got, err)
	}
	fail("no descriptor", "", 1<<20)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	fail("not a socket", "", pipe[0])
	tcp, _, err := Bind(TCP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	fail("not listening", TCP4, tcp)
	udp, _, err := Bind(UDP6, "[::1]:0")
	if err != nil {
		return err
	}
	fail("datagrams", UDP6, udp)
	idle, _, err := Listen(TCP6, "[::1]:0", 5)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(idle, true); err != nil {
		return err
	}
	fail("nobody there", TCP6, idle)
	busy, _, caller, err := dial(TCP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	return a.full(func() {
		fail("too many", TCP4, busy)
		for _, fd := range []int{pipe[0], pipe[1], tcp, udp, idle, busy, caller} {
			Close(fd)
		}
	})
}

// full runs do while the process cannot open more descriptors.
func (a *accepts) full(do func()) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		return err
	}
	do()
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
}
