// SPDX-License-Identifier: Apache-2.0

package why

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

const (
	bodyFull  = "why-full"
	bodyNone  = "why-none"
	bodyServe = "why-serve"
	bodyAsk   = "why-ask"
	bodyHoard = "why-hoard"
	bodyFill  = "why-fill"
)

func init() {
	lab.Register(bodyFull, acceptFull)
	lab.Register(bodyNone, socketFull)
	lab.Register(bodyServe, serve)
	lab.Register(bodyAsk, ask)
	lab.Register(bodyHoard, hoard)
	lab.Register(bodyFill, fill)
}

// acceptFull is a process that has no descriptor left for a connection that waits.
func acceptFull(c *lab.Child) error {
	listener, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 16)
	if err != nil {
		return err
	}
	sa, err := lab.TCP4.Sockaddr(fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	client, err := lab.Socket(lab.TCP4)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Report(port), c.Await("go"), unix.Connect(client, sa)); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(client), Max: uint64(client)}); err != nil {
		return err
	}
	if _, _, err := unix.Accept(listener); !errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("accept: %v, want EMFILE", err)
	}
	return c.Report(true)
}

// socketFull is a process that has no descriptor left for a socket.
func socketFull(c *lab.Child) error {
	last, err := lab.Socket(lab.TCP4)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Report(true), c.Await("go")); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last), Max: uint64(last)}); err != nil {
		return err
	}
	for range 3 {
		if _, err := lab.Socket(lab.TCP4); !errors.Is(err, unix.EMFILE) {
			return fmt.Errorf("socket: %v, want EMFILE", err)
		}
	}
	return c.Report(true)
}

// A service is a server of many connections, with the treatment of requests.
type service struct {
	Addr   string          // where it listens
	Waits  []time.Duration // delays before an answer; the n-th connection begins with the n-th
	Asks   string          // another server, which it asks for each answer
	Events int             // that follow an answer without being asked for
	Every  time.Duration   // between them
	Close  bool            // it closes with bytes unread, so that the kernel sends a reset
}

// The sizes of messages.
const (
	asked    = 100
	answered = 1000
)

// startService starts one in a host, and returns its port.
func startService(w *lab.World, host, comm string, s service) (port int, err error) {
	p, err := w.Start(host, comm, bodyServe, s)
	if err != nil {
		return 0, err
	}
	return port, p.Expect(&port)
}

func serve(c *lab.Child) error {
	var s service
	if err := c.Arg(&s); err != nil {
		return err
	}
	l, err := net.Listen("tcp4", s.Addr)
	if err != nil {
		return err
	}
	if err := c.Report(l.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	for n := 0; ; n++ {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go s.talk(conn, n)
	}
}

// talk answers until the client closes.
func (s *service) talk(conn net.Conn, n int) {
	defer conn.Close()
	var behind net.Conn
	if s.Asks != "" {
		var err error
		if behind, err = net.Dial("tcp4", s.Asks); err != nil {
			return
		}
		defer behind.Close()
	}
	buf := make([]byte, answered)
	for ; ; n++ {
		if s.Close {
			io.ReadFull(conn, buf[:asked/2])
			return
		}
		if _, err := io.ReadFull(conn, buf[:asked]); err != nil {
			return
		}
		if len(s.Waits) > 0 {
			time.Sleep(s.Waits[n%len(s.Waits)])
		}
		if behind != nil && exchange(behind, buf, 1) != nil {
			return
		}
		if _, err := conn.Write(buf); err != nil {
			return
		}
		for range s.Events {
			time.Sleep(s.Every)
			if _, err := conn.Write(buf[:asked]); err != nil {
				return
			}
		}
	}
}

// exchange sends a request in n writes, and reads the answer.
func exchange(conn net.Conn, buf []byte, writes int) error {
	for range writes {
		if _, err := conn.Write(buf[:asked/writes]); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(conn, buf[:answered])
	return err
}

// users are concurrent clients in one process.
type users struct {
	Addr   string
	Count  int
	Turns  int           // of each
	Writes int           // of a request, without TCP_NODELAY if more than one
	Events int           // to read behind each answer
	Gap    time.Duration // before a turn
	Idle   time.Duration // that they stay
	Reset  bool          // the server resets
}

// startUsers starts them in a host. run makes them send their requests, and
// returns when all have finished.
func startUsers(w *lab.World, host, comm string, u users) (run func() error, err error) {
	if u.Writes == 0 {
		u.Writes = 1
	}
	p, err := w.Start(host, comm, bodyAsk, u)
	if err != nil {
		return nil, err
	}
	return func() error { var done bool; return p.Call("go", &done) }, nil
}

func ask(c *lab.Child) error {
	var u users
	if err := c.Arg(&u); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var wait sync.WaitGroup
	errs := make([]error, u.Count)
	for i := range u.Count {
		conn, err := net.Dial("tcp4", u.Addr)
		if err != nil {
			return err
		}
		wait.Go(func() { errs[i] = u.talk(conn) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.Report(true)
}

func (u *users) talk(conn net.Conn) error {
	defer conn.Close()
	if u.Writes > 1 {
		conn.(*net.TCPConn).SetNoDelay(false)
	}
	buf := make([]byte, answered)
	for range u.Turns {
		time.Sleep(u.Gap)
		err := exchange(conn, buf, u.Writes)
		if u.Reset {
			if !errors.Is(err, unix.ECONNRESET) {
				return fmt.Errorf("%v, want a reset", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(u.Events*asked)); err != nil {
			return err
		}
	}
	time.Sleep(u.Idle)
	return nil
}

// unread is connections whose data the server leaves unread for a while. They fit into the
// receive window, so that no sender waits, but for the first one if Over is set.
type unread struct {
	Addr  string
	Count int
	First int           // bytes of a connection
	More  int           // bytes that follow
	Over  time.Duration // how long the client writes to the first connection then
}

// hoard is a server that reads only when it is told to.
func hoard(c *lab.Child) error {
	var u unread
	if err := c.Arg(&u); err != nil {
		return err
	}
	l, err := net.Listen("tcp4", u.Addr)
	if err != nil {
		return err
	}
	if err := c.Report(l.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	conns := make([]net.Conn, u.Count)
	for i := range conns {
		if conns[i], err = l.Accept(); err != nil {
			return err
		}
	}
	if err := c.Await("read"); err != nil {
		return err
	}
	for i, conn := range conns {
		n, err := io.Copy(io.Discard, conn)
		if more := n - int64(u.First+u.More); err != nil || more < 0 || (more > 0) != (u.Over > 0 && i == 0) {
			return fmt.Errorf("connection %d: read %d bytes, want %d: %v", i, n, u.First+u.More, err)
		}
		conn.Close()
	}
	return c.Report(true)
}

// fill is its client: it sends the first bytes, those that follow when it is told to, and ends.
func fill(c *lab.Child) error {
	var u unread
	if err := c.Arg(&u); err != nil {
		return err
	}
	conns := make([]net.Conn, u.Count)
	send := func(word string, n int) error {
		if err := c.Await(word); err != nil {
			return err
		}
		for i := range conns {
			if conns[i] == nil {
				conn, err := net.Dial("tcp4", u.Addr)
				if err != nil {
					return err
				}
				conns[i] = conn
			}
			if _, err := conns[i].Write(make([]byte, n)); err != nil {
				return err
			}
		}
		return c.Report(true)
	}
	if err := errors.Join(send("first", u.First), send("more", u.More), c.Await("over")); err != nil {
		return err
	}
	if u.Over > 0 {
		conns[0].SetWriteDeadline(time.Now().Add(u.Over))
		if _, err := conns[0].Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the receive window never closed: %v", err)
		}
	}
	if err := errors.Join(c.Report(true), c.Await("close")); err != nil {
		return err
	}
	for _, conn := range conns {
		conn.Close()
	}
	return c.Report(true)
}
