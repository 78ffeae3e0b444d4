// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Writes is small writes on a connection with both ends in one process.
type Writes struct {
	NoDelay bool          `json:"nodelay"`
	Cork    bool          `json:"cork"`
	Count   int           `json:"count"`
	Size    int           `json:"size"`
	Hold    time.Duration `json:"hold"` // before the cork is removed; without a cork: before the reading end writes a byte, which carries the acknowledgement
	Each    bool          `json:"each"` // each is read and acknowledged before the next is written
	Fill    bool          `json:"fill"` // write until the kernel takes no more; Count is what was done
}

// Written is the result of Writes, by the process's own stopwatch.
type Written struct {
	Count int `json:"count"`
	// Held is how long the kernel reported unsent data: under a cork since the end of
	// the first write, else since the end of the last write.
	Held  int64 `json:"held"`
	Early bool  `json:"early"` // the kernel sent something before the cork was removed
	RTO   bool  `json:"rto"`   // without a cork: the retransmission timer had expired after the last write
	NS    int64 `json:"ns"`    // until all was read
}

// Writer is a process with an open connection.
type Writer struct {
	*Proc
	Port int // of the end that is read
	Own  int // of the end that is written
}

const bodyWriter = "writer"

func init() { Register(bodyWriter, writer) }

// StartWriter opens the connection.
func StartWriter(w *World, comm string, network Network, list ...Writes) (*Writer, error) {
	arg := writerArg{Network: network, Addr: network.At(w.Addr("", network), 0), List: list}
	p, err := w.Start("", comm, bodyWriter, arg)
	if err != nil {
		return nil, err
	}
	x := &Writer{Proc: p}
	var e Ends
	err = p.Expect(&e)
	x.Port, x.Own = e.ReaderPort, e.WriterPort
	return x, err
}

// Run makes the writes and waits for the process to end.
func (x *Writer) Run() ([]Written, error) {
	var out []Written
	if err := x.Call("go", &out); err != nil {
		return nil, err
	}
	return out, x.Wait()
}

type writerArg struct {
	Network Network
	Addr    string
	List    []Writes
}

// writer is the body.
func writer(c *Child) error {
	var arg writerArg
	if err := c.Arg(&arg); err != nil {
		return err
	}
	l, _, err := Listen(arg.Network, arg.Addr, 1)
	if err != nil {
		return err
	}
	to, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	w, err := Socket(arg.Network)
	if err != nil {
		return err
	}
	if err := connect(w, to); err != nil {
		return err
	}
	r, err := Accept(l)
	if err != nil {
		return err
	}
	var e Ends
	e.WriterPort, _ = LocalPort(w)
	e.ReaderPort, _ = LocalPort(r)
	if err := c.Report(e); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var out []Written
	for _, s := range arg.List {
		o, err := s.do(w, r)
		if err != nil {
			return err
		}
		out = append(out, o)
	}
	return c.Report(out)
}

func (s Writes) do(w, r int) (o Written, err error) {
	set := func(name int, on bool) {
		v := 0
		if on {
			v = 1
		}
		err = errors.Join(err, unix.SetsockoptInt(w, unix.IPPROTO_TCP, name, v))
	}
	set(unix.TCP_NODELAY, s.NoDelay)
	set(unix.TCP_CORK, s.Cork)
	if err != nil {
		return o, err
	}
	buf := make([]byte, s.Size)
	start := time.Now()
	var first, last time.Time
	total := 0
	for s.Fill || o.Count < s.Count {
		n, err := unix.SendmsgN(w, buf, nil, nil, unix.MSG_DONTWAIT)
		if s.Fill && errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return o, fmt.Errorf("write: %w", err)
		}
		last = time.Now()
		total += n
		if o.Count++; o.Count == 1 {
			first = last
		}
		if s.Each {
			if err := errors.Join(RecvAll(r, buf), drained(w)); err != nil {
				return o, err
			}
		}
	}
	switch {
	case s.Each:
	case s.Cork:
		time.Sleep(s.Hold)
		o.Held = int64(time.Since(first))
		unsent, e := unix.IoctlGetInt(w, unix.SIOCOUTQNSD)
		o.Early = unsent < total
		if set(unix.TCP_CORK, false); errors.Join(err, e) != nil {
			return o, errors.Join(err, e)
		}
		err = errors.Join(RecvAll(r, make([]byte, total)), drained(w))
	default:
		if !s.Fill {
			err = o.watch(w, r, s, last)
		}
		err = errors.Join(err, RecvAll(r, make([]byte, total)))
	}
	o.NS = int64(time.Since(start))
	return o, err
}

// watch polls until the kernel has begun to send the last write. After the hold the
// other end writes, if it has to.
func (o *Written) watch(w, r int, s Writes, last time.Time) error {
	i, err := unix.GetsockoptTCPInfo(w, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return err
	}
	o.RTO = i.Ca_state == caLoss
	for {
		now := time.Now()
		if n, err := unix.IoctlGetInt(w, unix.SIOCOUTQNSD); err != nil || n < s.Size {
			return err
		}
		o.Held = int64(now.Sub(last))
		if s.Hold > 0 && now.Sub(last) >= s.Hold {
			if _, err := unix.Write(r, []byte{1}); err != nil {
				return err
			}
			s.Hold = 0
		}
		time.Sleep(time.Millisecond)
	}
}

// caLoss is the state of the congestion control after a timeout: TCP_CA_Loss.
const caLoss = 4

// drained waits until the peer has acknowledged all that was written.
func drained(fd int) error {
	for {
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err != nil || n == 0 {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
}
