// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// piece is the most that a session sends or receives by one call.
const piece = 1 << 20

// side makes the sessions of one process.
type side struct {
	Sessions
	listener int
	res      Side
	next     atomic.Int64
	mu       sync.Mutex
}

// tcpServer is the body of the server: listen, report the port, serve Count
// sessions, report.
func tcpServer(c *Child) error {
	var s side
	if err := c.Arg(&s.Sessions); err != nil {
		return err
	}
	addr := s.Addrs[0]
	switch {
	case len(s.Addrs) == 1:
	case s.Network.Family() == unix.AF_INET:
		addr = netip.IPv4Unspecified()
	case s.Network.Family() == unix.AF_INET6:
		addr = netip.IPv6Unspecified()
	}
	var port int
	var err error
	if s.listener, port, err = Listen(s.Network, s.at(addr), s.Backlog); err != nil {
		return err
	}
	defer Close(s.listener)
	if err := c.Report(port); err != nil {
		return err
	}
	if s.Locked {
		defer s.lock()()
	}
	if s.Hold {
		err = s.hold(c, s.accept, s.answer)
	} else {
		err = s.all(s.accept, s.answer)
	}
	if err != nil {
		return err
	}
	return c.Report(s.result())
}

// lock starts a thread that locks the listener until the returned function is called. The
// kernel compiles a filter under the lock, which takes long.
func (s *side) lock() (stop func()) {
	var stopped atomic.Bool
	var wg sync.WaitGroup
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31}
	wg.Go(func() {
		for !stopped.Load() {
			unix.SetsockoptSockFprog(s.listener, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all})
		}
	})
	return func() { stopped.Store(true); wg.Wait() }
}

// tcpClient is the body of the client: wait for "go", make Count sessions,
// report.
func tcpClient(c *Child) error {
	var s side
	if err := c.Arg(&s.Sessions); err != nil {
		return err
	}
	word := "go"
	if s.Hold {
		word = "open"
	}
	if err := c.Await(word); err != nil {
		return err
	}
	var err error
	if s.Hold {
		err = s.hold(c, s.open, func(k caller, o *opened, buf []byte) error {
			if o.index == 0 {
				if err := c.Await("go"); err != nil {
					return err
				}
			}
			return s.talk(k, o, buf)
		})
	} else {
		err = s.all(s.open, s.talk)
	}
	if err != nil {
		return err
	}
	return c.Report(s.result())
}

// opened is a session under way.
type opened struct {
	index int
	fd    int
	start time.Time
	Session
}

type (
	begin  func(k caller, index int) (*opened, error)
	finish func(k caller, o *opened, buf []byte) error
)

// all makes Count sessions with as many threads as asked for.
func (s *side) all(begin begin, finish finish) error {
	start := time.Now()
	if s.Parallel == 1 {
		err := s.work(begin, finish)
		s.res.NS = int64(time.Since(start))
		return err
	}
	errs := make([]error, s.Parallel)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = s.work(begin, finish) })
	}
	wg.Wait()
	s.res.NS = int64(time.Since(start))
	return errors.Join(errs...)
}

// work makes sessions until none is left.
func (s *side) work(begin begin, finish finish) error {
	k, err := newCaller(s.Uring)
	if err != nil {
		return err
	}
	defer k.close()
	buf := s.buffer()
	for {
		i := int(s.next.Add(1)) - 1
		if i >= s.Count {
			return nil
		}
		o, err := begin(k, i)
		if err == nil {
			err = finish(k, o, buf)
		}
		if err != nil {
			return fmt.Errorf("session %d of %d: %w", i+1, s.Count, err)
		}
		s.done(o)
	}
}

// hold begins all sessions, reports that, and finishes them in their order.
func (s *side) hold(c *Child, begin begin, finish finish) error {
	k, err := newCaller(s.Uring)
	if err != nil {
		return err
	}
	defer k.close()
	open := make([]*opened, s.Count)
	for i := range open {
		if open[i], err = begin(k, i); err != nil {
			return fmt.Errorf("session %d of %d: %w", i+1, s.Count, err)
		}
	}
	if err := c.Report(len(open)); err != nil {
		return err
	}
	start := time.Now()
	buf := s.buffer()
	for _, o := range open {
		if err := finish(k, o, buf); err != nil {
			return fmt.Errorf("session %d of %d: %w", o.index+1, s.Count, err)
		}
		s.done(o)
	}
	s.res.NS = int64(time.Since(start))
	return nil
}

// at is the server's address, as Listen and Connect take it.
func (s *side) at(addr netip.Addr) string {
	if s.Network.Family() == unix.AF_UNIX {
		return s.Path
	}
	return s.Network.At(addr, s.Port)
}

func (s *side) buffer() []byte { return make([]byte, min(max(s.Send, s.Recv), piece)) }

// done adds a finished session to the result.
func (s *side) done(o *opened) {
	o.NS = int64(time.Since(o.start))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res.Count++
	if s.Brief {
		return
	}
	if s.res.Sessions == nil {
		s.res.Sessions = make([]Session, s.Count)
	}
	s.res.Sessions[o.index] = o.Session
}

func (s *side) result() Side {
	s.res.Tally = TakeTally()
	return s.res
}

// plainOf is TCP for MPTCP.
var plainOf = map[Network]Network{MPTCP4: TCP4, MPTCP6: TCP6}

// open begins a session on the client.
func (s *side) open(k caller, index int) (*opened, error) {
	o := &opened{index: index}
	o.Addr = s.Addrs[index%len(s.Addrs)]
	sa, err := s.Network.Sockaddr(s.at(o.Addr))
	if err != nil {
		return nil, err
	}
	network := s.Network
	if s.Plain {
		network = plainOf[network]
	}
	if o.fd, err = bound(network, s.From); err != nil {
		return nil, err
	}
	if s.Fast {
		if err := unix.SetsockoptInt(o.fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
			return nil, unsupported("TCP_FASTOPEN_CONNECT", err)
		}
	}
	o.start = time.Now()
	if err := k.connect(o.fd, sa); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	o.ConnectNS = int64(time.Since(o.start))
	o.ClientPort, err = LocalPort(o.fd)
	return o, err
}

// talk does the client's part of the rest.
func (s *side) talk(k caller, o *opened, buf []byte) error {
	if err := transfer(s.Send, buf, o.fd, k.sendAll); err != nil {
		return err
	}
	if err := transfer(s.Recv, buf, o.fd, k.recvAll); err != nil {
		return err
	}
	if s.Recv > 0 {
		o.FirstNS = int64(time.Since(o.start))
	}
	switch s.Close {
	case ByServer:
		if err := k.recvEnd(o.fd); err != nil {
			return err
		}
	case ByReset:
		return Reset(o.fd)
	}
	return Close(o.fd)
}

// accept begins a session on the server.
func (s *side) accept(k caller, index int) (*opened, error) {
	o := &opened{index: index}
	before := time.Now()
	var err error
	if o.fd, err = k.accept(s.listener); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	o.start = time.Now()
	o.ConnectNS = int64(o.start.Sub(before))
	if o.Addr = s.Addrs[0]; len(s.Addrs) > 1 {
		if sa, err := unix.Getsockname(o.fd); err == nil {
			o.Addr = addrOf(sa)
		}
	}
	if sa, err := unix.Getpeername(o.fd); err == nil { // ENOTCONN after a reset
		o.ClientPort = portOf(sa)
	}
	return o, nil
}

// answer does the server's part of the rest.
func (s *side) answer(k caller, o *opened, buf []byte) error {
	if err := transfer(s.Send, buf, o.fd, k.recvAll); err != nil {
		return err
	}
	if s.Think > 0 {
		time.Sleep(s.Think)
	}
	if err := transfer(s.Recv, buf, o.fd, k.sendAll); err != nil {
		return err
	}
	if s.Close != ByServer {
		err := k.recvEnd(o.fd)
		if reset := s.Close == ByReset; reset != errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("the client's end: %v", err)
		} else if err != nil && !reset {
			return err
		}
	}
	return Close(o.fd)
}

// transfer moves n bytes by pieces.
func transfer(n int, buf []byte, fd int, move func(int, []byte) error) error {
	for n > 0 {
		b := buf[:min(n, len(buf))]
		if err := move(fd, b); err != nil {
			return err
		}
		n -= len(b)
	}
	return nil
}
