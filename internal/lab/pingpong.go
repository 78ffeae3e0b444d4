// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// PingPong is a long-lived load for measurements. Over connections that stay
// open, a client sends requests and a server answers, as fast as they can.
type PingPong struct {
	Network  Network // TCP4 by default; TCP6, MPTCP4, MPTCP6 or Unix
	Requests int     // how many in all; 0: until End
	Size     int     // bytes of each request; default 64
	Answer   int     // and of each answer; default 64
	Parallel int     // connections, each with a thread on both sides; default 1

	// The hosts and names of the processes; defaults as for Sessions.
	ClientHost, ServerHost string
	ClientComm, ServerComm string
}

// PingPongSide is what one process did between go and the end.
type PingPongSide struct {
	Requests int           `json:"requests"`
	NS       int64         `json:"ns"`
	User     time.Duration `json:"user"` // CPU time by getrusage(2), of all threads
	System   time.Duration `json:"system"`
}

// CPU is the processor time used.
func (s PingPongSide) CPU() time.Duration { return s.User + s.System }

// PingPongResult is what both did.
type PingPongResult struct{ Client, Server PingPongSide }

// Rally is a ping-pong whose connections are open and wait to be used.
type Rally struct {
	Client, Server *Proc
	Addr           string // of the server, as Network.Sockaddr takes it
	PingPong       PingPong
}

const (
	bodyPing = "ping-client"
	bodyPong = "ping-server"
)

func init() {
	Register(bodyPing, pingClient)
	Register(bodyPong, pingServer)
}

type pingArg struct {
	PingPong
	Addr string
}

// StartPingPong starts both processes and opens the connections.
func StartPingPong(w *World, p PingPong) (*Rally, error) {
	setDefault(&p.Network, TCP4)
	setDefault(&p.Size, 64)
	setDefault(&p.Answer, 64)
	setDefault(&p.Parallel, 1)
	w.cast(&p.ClientHost, &p.ServerHost, &p.ClientComm, &p.ServerComm)
	t := Target{Network: p.Network, Backlog: p.Parallel}
	if err := t.place(w, p.ServerHost, p.ServerComm); err != nil {
		return nil, err
	}
	r := &Rally{PingPong: p}
	var err error
	if r.Server, err = w.Start(p.ServerHost, p.ServerComm, bodyPong, pingArg{p, t.Addr}); err != nil {
		return nil, err
	}
	if err := r.Server.Expect(&r.Addr); err != nil {
		return nil, err
	}
	if r.Client, err = w.Start(p.ClientHost, p.ClientComm, bodyPing, pingArg{p, r.Addr}); err != nil {
		return nil, err
	}
	var n int
	return r, errors.Join(r.Client.Expect(&n), r.Server.Expect(&n))
}

// Run makes the requests and waits for both processes to end. It is for a load
// of a given number of requests.
func (r *Rally) Run() (PingPongResult, error) {
	if r.PingPong.Requests == 0 {
		return PingPongResult{}, errors.New("lab: this load has no end: use Begin and End")
	}
	if err := r.Begin(); err != nil {
		return PingPongResult{}, err
	}
	return r.result()
}

// Begin lets the client start.
func (r *Rally) Begin() error {
	return errors.Join(r.Server.Tell("go"), r.Client.Tell("go"))
}

// End stops a load that has no number of requests, and waits for both.
func (r *Rally) End() (PingPongResult, error) {
	if err := r.Client.Tell("end"); err != nil {
		return PingPongResult{}, err
	}
	return r.result()
}

func (r *Rally) result() (res PingPongResult, err error) {
	err = errors.Join(r.Client.Expect(&res.Client), r.Server.Expect(&res.Server), r.Client.Wait(), r.Server.Wait())
	return res, err
}

func pingServer(c *Child) error {
	var a pingArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	fd, addr, err := Target{Network: a.Network, Addr: a.Addr, Backlog: a.Parallel}.open()
	if err != nil {
		return err
	}
	defer Close(fd)
	if err := c.Report(addr); err != nil {
		return err
	}
	fds := make([]int, a.Parallel)
	for i := range fds {
		if fds[i], err = Accept(fd); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
	}
	return a.play(c, fds, func(fd int, buf []byte) (bool, error) {
		n, err := readFull(fd, buf[:a.Size])
		if n == 0 || err != nil {
			return false, err
		}
		return true, writeFull(fd, buf[:a.Answer])
	})
}

func pingClient(c *Child) error {
	var a pingArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	fds := make([]int, a.Parallel)
	for i := range fds {
		fd, err := Connect(a.Network, a.Addr)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if a.Network.tcp() {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
				return err
			}
		}
		fds[i] = fd
	}
	var mu sync.Mutex
	left := a.Requests
	return a.play(c, fds, func(fd int, buf []byte) (bool, error) {
		if a.Requests > 0 {
			mu.Lock()
			left--
			over := left < 0
			mu.Unlock()
			if over {
				return false, nil
			}
		} else if c.Told() {
			return false, nil
		}
		if err := writeFull(fd, buf[:a.Size]); err != nil {
			return false, err
		}
		n, err := readFull(fd, buf[:a.Answer])
		if err == nil && n == 0 {
			err = errors.New("the server ended")
		}
		return err == nil, err
	})
}

// play makes turns on each connection until one ends, closes the connections,
// and reports.
func (a pingArg) play(c *Child, fds []int, turn func(fd int, buf []byte) (bool, error)) error {
	if err := c.Report(len(fds)); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	before, err := usage()
	if err != nil {
		return err
	}
	start := time.Now()
	counts, errs := make([]int, len(fds)), make([]error, len(fds))
	var wg sync.WaitGroup
	for i, fd := range fds {
		wg.Go(func() {
			defer unix.Close(fd)
			buf := make([]byte, max(a.Size, a.Answer))
			for n := 0; ; n++ {
				if more, err := turn(fd, buf); !more {
					counts[i], errs[i] = n, err
					return
				}
			}
		})
	}
	wg.Wait()
	res := PingPongSide{NS: int64(time.Since(start))}
	after, err := usage()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for _, n := range counts {
		res.Requests += n
	}
	res.User, res.System = after[0]-before[0], after[1]-before[1]
	return c.Report(res)
}

// usage is the user and the system time of this process.
func usage() ([2]time.Duration, error) {
	var ru unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &ru)
	return [2]time.Duration{time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())}, err
}

// readFull and writeFull are read(2) and write(2) without the tally, whose lock
// would affect the measurement. readFull returns 0 at the end of the stream.
func readFull(fd int, b []byte) (int, error) {
	for done := 0; done < len(b); {
		n, err := unix.Read(fd, b[done:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

func writeFull(fd int, b []byte) error {
	_, err := rawFile(fd).Write(b)
	return err
}
