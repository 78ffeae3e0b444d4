// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// MixCount says how often a mix made one kind of call on one kind of socket.
type MixCount struct {
	Op     string `json:"op"`     // connect, accept, bind, socket, listen, send, receive, socketpair
	Family int    `json:"family"` // 0: the call failed without a socket
	Proto  int    `json:"proto"`
	Count  int    `json:"count"`
	Errors int    `json:"errors"` // of them; calls that found nothing to do are not counted
	Bytes  int64  `json:"bytes"`
}

// Mix is a process that is ready to make socket calls of many kinds: TCP, UDP,
// UNIX and raw, IPv4 and IPv6, MPTCP and io_uring where the kernel has them, with
// and without success.
type Mix struct{ *Proc }

const bodyMix = "mix"

func init() { Register(bodyMix, doMix) }

// StartMix starts the process.
func StartMix(w *World, host, comm string) (*Mix, error) {
	p, err := w.StartReady(host, comm, bodyMix, nil)
	return &Mix{p}, err
}

// Run makes the calls and waits for the process to end.
func (m *Mix) Run() ([]MixCount, error) {
	var out []MixCount
	if err := m.Call("go", &out); err != nil {
		return nil, err
	}
	return out, m.Wait()
}

func doMix(c *Child) error {
	// The checks make calls too, so they come before the counting starts.
	mptcp, uring := MPTCPSupported(), UringSupported()
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	m := &mix{}
	defer m.close()
	steps := []func() error{
		func() error { return m.streams(TCP4, "127.0.0.1:0", 5) },
		func() error { return m.streams(TCP6, "[::1]:0", 3) },
		func() error { return m.streams(Unix, "@lab-mix", 7) },
		func() error { return m.datagrams(UDP4, "127.0.0.1:0", 11) },
		func() error { return m.datagrams(UDP6, "[::1]:0", 2) },
		func() error { return m.raw(Raw4, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, 2) },
		func() error { return m.raw(Raw6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}, 3) },
		func() error { return m.pairs(13) },
		m.failures,
	}
	if mptcp == nil {
		steps = append(steps, func() error { return m.streams(MPTCP4, "127.0.0.1:0", 2) })
	}
	if uring == nil {
		steps = append(steps, m.uring)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return c.Report(m.out)
}

type mix struct {
	out []MixCount
	fds []int
}

func (m *mix) close() {
	for _, fd := range m.fds {
		unix.Close(fd)
	}
}

// add counts a call on a socket of n and returns its error.
func (m *mix) add(op string, n Network, bytes int, err error) error {
	k := networks[n]
	if k.family == unix.AF_UNIX {
		k.proto = 0
	}
	return m.addTo(op, k.family, k.proto, bytes, err)
}

func (m *mix) addTo(op string, family, proto, bytes int, err error) error {
	var c *MixCount
	for i := range m.out {
		if o := &m.out[i]; o.Op == op && o.Family == family && o.Proto == proto {
			c = o
		}
	}
	if c == nil {
		m.out = append(m.out, MixCount{Op: op, Family: family, Proto: proto})
		c = &m.out[len(m.out)-1]
	}
	c.Count++
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		c.Errors++
	} else {
		c.Bytes += int64(bytes)
	}
	return err
}

func (m *mix) socket(n Network) (int, error) {
	fd, err := Socket(n)
	if m.add("socket", n, 0, err) == nil {
		m.fds = append(m.fds, fd)
	}
	return fd, err
}

// bound makes a socket that has an address, and gives it.
func (m *mix) bound(n Network, addr string) (int, unix.Sockaddr, error) {
	sa, err := n.Sockaddr(addr)
	if err != nil {
		return -1, nil, err
	}
	fd, err := m.socket(n)
	if err != nil {
		return -1, nil, err
	}
	if err := m.add("bind", n, 0, unix.Bind(fd, sa)); err != nil {
		return -1, nil, err
	}
	sa, err = unix.Getsockname(fd)
	return fd, sa, err
}

func (m *mix) send(fd int, n Network, size int) error {
	_, err := unix.Write(fd, make([]byte, size))
	return m.add("send", n, size, err)
}

func (m *mix) receive(fd int, n Network, size int) error {
	got, err := unix.Read(fd, make([]byte, size))
	if err == nil && got != size {
		return fmt.Errorf("read %d bytes, want %d", got, size)
	}
	return m.add("receive", n, got, err)
}

// streams makes connections to a listener, accepts them in three ways, and sends
// a message over each.
func (m *mix) streams(n Network, addr string, count int) error {
	l, sa, err := m.bound(n, addr)
	if err != nil {
		return err
	}
	if err := m.add("listen", n, 0, unix.Listen(l, 100)); err != nil {
		return err
	}
	for i := range count {
		c, err := m.socket(n)
		if err == nil {
			err = m.add("connect", n, 0, unix.Connect(c, sa))
		}
		if err != nil {
			return err
		}
		var s int
		switch i % 3 {
		case 0:
			s, err = acceptAs0(l)
		case 1:
			s, _, err = unix.Accept(l)
		default:
			s, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC)
		}
		if m.add("accept", n, 0, err) != nil {
			return err
		}
		m.fds = append(m.fds, s)
		if err := m.send(c, n, 100+i); err != nil {
			return err
		}
		if err := m.receive(s, n, 100+i); err != nil {
			return err
		}
	}
	return nil
}

// acceptAs0 accepts without an address buffer while standard input is closed,
// so that the descriptor is 0. Then it duplicates the descriptor to another
// number.
func acceptAs0(l int) (int, error) {
	in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return -1, err
	}
	defer unix.Close(in)
	unix.Close(0)
	fd, _, e := unix.Syscall(unix.SYS_ACCEPT, uintptr(l), 0, 0)
	s := -1
	if e == 0 {
		if s, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 10); err != nil {
			return -1, err
		}
	}
	if err := unix.Dup3(in, 0, 0); err != nil {
		return -1, err
	}
	if e == 0 && fd != 0 {
		return -1, fmt.Errorf("accepted as descriptor %d, want 0", fd)
	}
	if e != 0 {
		return -1, e
	}
	return s, nil
}

func (m *mix) datagrams(n Network, addr string, count int) error {
	s, sa, err := m.bound(n, addr)
	if err != nil {
		return err
	}
	c, err := m.socket(n)
	if err == nil {
		err = m.add("connect", n, 0, unix.Connect(c, sa))
	}
	for i := range count {
		if err == nil {
			err = m.send(c, n, 10+i)
		}
		if err == nil {
			err = m.receive(s, n, 10+i)
		}
	}
	return err
}

func (m *mix) raw(n Network, sa unix.Sockaddr, count int) error {
	for range count {
		fd, err := m.socket(n)
		if err == nil {
			err = m.add("connect", n, 0, unix.Connect(fd, sa))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mix) pairs(count int) error {
	for range count {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if m.add("socketpair", Unix, 0, err) != nil {
			return err
		}
		m.fds = append(m.fds, p[0], p[1])
		if err := m.send(p[0], Unix, 1); err != nil {
			return err
		}
		if err := m.receive(p[1], Unix, 1); err != nil {
			return err
		}
	}
	return nil
}

// failures makes calls that cannot succeed, and one that returns an error but
// has not failed.
func (m *mix) failures() error {
	fd, sa, err := m.bound(TCP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	for range 3 { // nobody listens there
		c, err := m.socket(TCP4)
		if err != nil {
			return err
		}
		m.add("connect", TCP4, 0, unix.Connect(c, sa))
	}
	other, err := m.socket(TCP4)
	if err != nil {
		return err
	}
	m.add("bind", TCP4, 0, unix.Bind(other, sa))
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 200)
	m.addTo("socket", unix.AF_INET, 0, 0, err)
	_, err = unix.Socketpair(unix.AF_INET, unix.SOCK_STREAM, 0)
	m.addTo("socketpair", unix.AF_INET, 0, 0, err)
	_, _, err = unix.Accept(fd)
	m.add("accept", TCP4, 0, err)
	_, _, err = unix.Accept(1 << 20)
	m.addTo("accept", 0, 0, 0, err)
	m.addTo("connect", 0, 0, 0, unix.Connect(1<<20, sa))
	m.add("send", TCP4, 0, unix.Sendto(other, []byte{1}, unix.MSG_NOSIGNAL, nil))
	_, _, err = unix.Recvfrom(other, []byte{1}, 0)
	m.add("receive", TCP4, 0, err)
	udp, _, err := m.bound(UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.add("listen", UDP4, 0, unix.Listen(udp, 5))
	return m.nonblocking()
}

// nonblocking connects and accepts without waiting. EINPROGRESS does not count
// as a failure, and an accept that finds no connection does not count as a
// call.
func (m *mix) nonblocking() error {
	l, sa, err := m.bound(TCP6, "[::1]:0")
	if err != nil {
		return err
	}
	if err := m.add("listen", TCP6, 0, unix.Listen(l, 5)); err != nil {
		return err
	}
	if err := unix.SetNonblock(l, true); err != nil {
		return err
	}
	if _, _, err := unix.Accept(l); !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("accept: %v, want EAGAIN", err)
	}
	c, err := m.socket(TCP6)
	if err == nil {
		err = unix.SetNonblock(c, true)
	}
	if err == nil {
		m.add("connect", TCP6, 0, unix.Connect(c, sa))
	}
	return err
}

// uring makes calls through a ring, as many of them as the kernel knows there.
func (m *mix) uring() error {
	ring, err := NewRing(4)
	if err != nil {
		return err
	}
	defer ring.Close()
	fd, err := ring.Socket(UDP4)
	if !errors.Is(err, ErrNotSupported) {
		if m.add("socket", UDP4, 0, err) != nil {
			return err
		}
		m.fds = append(m.fds, fd)
	}
	l, err := m.socket(TCP4)
	if err != nil {
		return err
	}
	any4 := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err = ring.Bind(l, any4); errors.Is(err, ErrNotSupported) {
		err = unix.Bind(l, any4)
	}
	if m.add("bind", TCP4, 0, err) != nil {
		return err
	}
	if err = ring.Listen(l, 5); errors.Is(err, ErrNotSupported) {
		err = unix.Listen(l, 5)
	}
	if m.add("listen", TCP4, 0, err) != nil {
		return err
	}
	sa, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	for range 3 {
		c, err := m.socket(TCP4)
		if err != nil {
			return err
		}
		if err := m.add("connect", TCP4, 0, ring.Connect(c, sa)); err != nil {
			return err
		}
		s, err := ring.Accept(l)
		if m.add("accept", TCP4, 0, err) != nil {
			return err
		}
		m.fds = append(m.fds, s)
		n, err := ring.Send(c, make([]byte, 77), 0)
		if m.add("send", TCP4, n, err) != nil {
			return err
		}
		n, err = ring.Recv(s, make([]byte, 77), 0)
		if m.add("receive", TCP4, n, err) != nil {
			return err
		}
	}
	// Neither listens.
	c, sa, err := m.bound(TCP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	refused, err := m.socket(TCP4)
	if err != nil {
		return err
	}
	if err := m.add("connect", TCP4, 0, ring.Connect(refused, sa)); !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("connect by io_uring: %v, want ECONNREFUSED", err)
	}
	_, err = ring.Accept(c)
	m.add("accept", TCP4, 0, err)
	return nil
}
