// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flood is UDP datagrams that one thread sends as fast as it can, or in bursts, to
// a process that reads them or not. (A flood of connections is Sessions with Brief
// and Parallel.)
type Flood struct {
	Network Network       // UDP4 by default, or UDP6
	Count   int           // datagrams
	Size    int           // bytes of each; default 64
	Flows   int           // sockets to send from, in turn; default 1
	Burst   int           // datagrams sent at once; default: all
	Gap     time.Duration // after a burst
	RcvBuf  int           // SO_RCVBUF of the reader, which the kernel doubles; default: the system's
	Idle    bool          // nothing is read until all is sent, so the buffer overflows

	// The hosts and names of the processes; defaults as for Sessions.
	ClientHost, ServerHost string
	ClientComm, ServerComm string
}

// FloodResult is what happened to the datagrams: Sent is the sum of Received,
// Dropped and Missing.
type FloodResult struct {
	Sent     int
	NS       int64 // for sending
	Received int   // read by the server, at the latest at the end
	Dropped  int   // because the receive buffer was full, by the socket's count
	Missing  int   // elsewhere: the queue of a CPU that was too busy
	RcvBuf   int   // as the kernel set it
}

// Flooding is a sender and a reader that are ready.
type Flooding struct {
	Client, Server *Proc
	Addr           string // of the reader
	Port           int
	Flood          Flood

	world  *World
	rcvBuf int
}

const (
	bodyFlood = "flood"
	bodySink  = "sink"
)

func init() {
	Register(bodyFlood, floodBody)
	Register(bodySink, sinkBody)
}

type floodArg struct {
	Flood
	Addr string
}

type sinkReady struct {
	Addr   string
	Port   int
	RcvBuf int
}

type sinkResult struct{ Received, Dropped int }

// StartFlood starts both processes.
func StartFlood(w *World, f Flood) (*Flooding, error) {
	setDefault(&f.Network, UDP4)
	setDefault(&f.Count, 1)
	setDefault(&f.Size, 64)
	setDefault(&f.Flows, 1)
	setDefault(&f.Burst, f.Count)
	w.cast(&f.ClientHost, &f.ServerHost, &f.ClientComm, &f.ServerComm)
	t := Target{Network: f.Network}
	if err := t.place(w, f.ServerHost, ""); err != nil {
		return nil, err
	}
	x := &Flooding{Flood: f, world: w}
	var err error
	if x.Server, err = w.Start(f.ServerHost, f.ServerComm, bodySink, floodArg{f, t.Addr}); err != nil {
		return nil, err
	}
	var ready sinkReady
	if err := x.Server.Expect(&ready); err != nil {
		return nil, err
	}
	x.Addr, x.Port, x.rcvBuf = ready.Addr, ready.Port, ready.RcvBuf
	x.Client, err = w.Start(f.ClientHost, f.ClientComm, bodyFlood, floodArg{f, x.Addr})
	return x, err
}

// Run sends everything and returns when both processes have ended.
func (x *Flooding) Run() (FloodResult, error) {
	var r FloodResult
	if err := errors.Join(x.Client.Call("go", &r), x.world.Settle()); err != nil {
		return r, err
	}
	var s sinkResult
	if err := x.Server.Call(fmt.Sprint("end ", r.Sent), &s); err != nil {
		return r, err
	}
	r.Received, r.Dropped, r.RcvBuf = s.Received, s.Dropped, x.rcvBuf
	r.Missing = r.Sent - r.Received - r.Dropped
	return r, errors.Join(x.Client.Wait(), x.Server.Wait())
}

// floodBody sends.
func floodBody(c *Child) error {
	var a floodArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	fds := make([]int, a.Flows)
	for i := range fds {
		fd, err := Connect(a.Network, a.Addr)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer Close(fd)
		fds[i] = fd
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	buf := make([]byte, a.Size)
	start := time.Now()
	for i := range a.Count {
		if i > 0 && i%a.Burst == 0 {
			time.Sleep(a.Gap)
		}
		if _, err := unix.Write(fds[i%a.Flows], buf); err != nil {
			return fmt.Errorf("datagram %d of %d: %w", i+1, a.Count, err)
		}
	}
	return c.Report(FloodResult{Sent: a.Count, NS: int64(time.Since(start))})
}

// sinkBody receives until it knows how many were sent and has accounted for all
// of them. It receives only after poll(2), so no receive fails.
func sinkBody(c *Child) error {
	var a floodArg
	if err := c.Arg(&a); err != nil {
		return err
	}
	fd, ready, err := a.openSink()
	if err != nil {
		return err
	}
	defer Close(fd)
	if err := c.Report(ready); err != nil {
		return err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	go func() { rawFile(pipe[1]).Write([]byte(c.Next())) }()
	r, err := a.drain(fd, pipe[0])
	if err != nil {
		return err
	}
	return c.Report(r)
}

// openSink makes the reader's socket.
func (a floodArg) openSink() (fd int, r sinkReady, err error) {
	fd, r.Addr, err = Target{Network: a.Network, Addr: a.Addr}.open()
	if err != nil {
		return fd, r, err
	}
	if a.Flood.RcvBuf > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, a.Flood.RcvBuf); err != nil {
			return fd, r, fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	if r.RcvBuf, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return fd, r, err
	}
	r.Port, err = LocalPort(fd)
	return fd, r, err
}

// drain receives until told says "end N" and N datagrams are accounted for, or
// none has come for a while.
func (a floodArg) drain(fd, told int) (r sinkResult, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(told), Events: unix.POLLIN}}
	if a.Idle {
		p[0].Fd = -1
	}
	buf := make([]byte, a.Size+len("end 2147483647"))
	sent, timeout := -1, -1
	for {
		n, err := unix.Poll(p, timeout)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return r, fmt.Errorf("poll: %w", err)
		}
		if p[0].Revents != 0 {
			if _, err := unix.Read(fd, buf); err != nil {
				return r, fmt.Errorf("read: %w", err)
			}
			r.Received++
		}
		if p[1].Revents != 0 {
			m, err := unix.Read(told, buf)
			if err == nil {
				_, err = fmt.Sscanf(string(buf[:m]), "end %d", &sent)
			}
			if err != nil {
				return r, fmt.Errorf("how many were sent: %w", err)
			}
			// A queueing discipline may still have some.
			p[0].Fd, p[1].Fd, timeout = int32(fd), -1, 2000
			continue
		}
		if sent < 0 {
			continue
		}
		if r.Dropped, err = Drops(fd); err != nil || n == 0 || r.Received+r.Dropped >= sent {
			return r, err
		}
	}
}

// Drops is the number of packets that a socket had no room for, by its own
// count.
func Drops(fd int) (int, error) {
	_, n, err := Received(fd)
	return n, err
}

// Received is two counts of a socket: the memory of the packets in its queue, and the
// number of packets that it had no room for.
func Received(fd int) (queued, dropped int, err error) {
	var info [16]uint32 // enum SK_MEMINFO_*
	size := uint32(unsafe.Sizeof(info))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return 0, 0, fmt.Errorf("SO_MEMINFO: %w", e)
	}
	return int(info[0]), int(info[8]), nil
}
