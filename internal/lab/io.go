// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Load is input and output over one connection. Both ends are in one process,
// which writes a message, reads it, and writes the next. Every call moves
// exactly what it should, so the numbers are exact.
type Load struct {
	Network Network // TCP, MPTCP, UDP or UNIX
	Write   Call    // how to send; default write(2)
	Read    Call    // how to receive; default read(2)
	Count   int     // messages
	Size    int     // bytes of each; 0 is for datagrams only

	// Batch is the number of messages written before they are read, and how many
	// sendmmsg and recvmmsg take at once; Count is a multiple of it. Default 1.
	// Batch*Size is at most 32 KiB.
	Batch int
	// Peek is the number of MSG_PEEK receives before each read, "peek" in the
	// tally.
	Peek int
	// Again is the number of receives, after all, that find nothing: EAGAIN.
	Again int
	// Broken is the number of writes, after that and after shutdown(2): EPIPE.
	Broken int
}

// Call is a system call, or an operation of io_uring, that moves data.
type Call string

// Calls that send or receive. Send and Recv are sendto(2) and recvfrom(2)
// without an address, as libc's functions of that name; Sendto and Recvfrom have
// one. Sendfile reads from a memory file. Splice goes through a pipe, whose
// other end is "pipe:write" or "pipe:read" in the tally, and can receive only
// from streams. The Uring ones go through a ring.
const (
	Write      Call = "write"
	Writev     Call = "writev"
	Send       Call = "send"
	Sendto     Call = "sendto"
	Sendmsg    Call = "sendmsg"
	Sendmmsg   Call = "sendmmsg"
	Sendfile   Call = "sendfile"
	UringSend  Call = "uring:send"
	UringWrite Call = "uring:write"
	Splice     Call = "splice"
	Read       Call = "read"
	Readv      Call = "readv"
	Recv       Call = "recv"
	Recvfrom   Call = "recvfrom"
	Recvmsg    Call = "recvmsg"
	Recvmmsg   Call = "recvmmsg"
	UringRecv  Call = "uring:recv"
	UringRead  Call = "uring:read"
)

// Name is the call's name in a Tally.
func (c Call) Name() string {
	switch c {
	case Send:
		return "sendto"
	case Recv:
		return "recvfrom"
	}
	return string(c)
}

// Ends are the two ends of a load's connection. Ports of UNIX sockets are 0.
type Ends struct {
	WriterPort int `json:"writer_port"`
	ReaderPort int `json:"reader_port"`
	WriterFD   int `json:"writer_fd"`
	ReaderFD   int `json:"reader_fd"`
}

// LoadResult is what a load did.
type LoadResult struct {
	Tally Tally `json:"tally"`
	NS    int64 `json:"ns"` // from the connection's opening to its close
	// BytesSent and BytesReceived are the kernel's own count for TCP (TCP_INFO),
	// without retransmissions.
	BytesSent     int64 `json:"bytes_sent"`
	BytesReceived int64 `json:"bytes_received"`
}

// IO is a process with the connections of its loads open, ready to use them.
type IO struct {
	*Proc
	Loads []Load
	Ends  []Ends // of each load
	Setup Tally  // the calls that opened them
}

const (
	bodyIO  = "io"
	mostIO  = 32 << 10 // what a connection can hold unread
	mostMsg = 100      // messages of a batch
)

func init() { Register(bodyIO, doIO) }

// StartIO starts a process in a host that opens a connection for each load.
func StartIO(w *World, host, comm string, loads ...Load) (*IO, error) {
	for i := range loads {
		if err := loads[i].defaults(); err != nil {
			return nil, fmt.Errorf("lab: load %d: %w", i, err)
		}
	}
	arg := ioArg{Addr4: Network.At(TCP4, w.Addr4(host), 0), Loads: loads}
	if a := w.Addr6(host); a.IsValid() {
		arg.Addr6 = Network.At(TCP6, a, 0)
	}
	p, err := w.Start(host, comm, bodyIO, arg)
	if err != nil {
		return nil, err
	}
	var r ioReady
	if err := p.Expect(&r); err != nil {
		return nil, err
	}
	return &IO{Proc: p, Loads: loads, Ends: r.Ends, Setup: r.Setup}, nil
}

// Run does the loads one after the other and waits for the process to end.
func (o *IO) Run() ([]LoadResult, error) {
	var r []LoadResult
	if err := o.Call("go", &r); err != nil {
		return nil, err
	}
	return r, o.Wait()
}

func (l *Load) defaults() error {
	setDefault(&l.Write, Write)
	setDefault(&l.Read, Read)
	setDefault(&l.Batch, 1)
	_, canWrite := writers[l.Write]
	_, canRead := readers[l.Read]
	switch {
	case !canWrite:
		return fmt.Errorf("%q does not send", l.Write)
	case !canRead:
		return fmt.Errorf("%q does not receive", l.Read)
	case l.Count%l.Batch != 0:
		return fmt.Errorf("%d messages are not a multiple of %d", l.Count, l.Batch)
	case l.Batch*l.Size > mostIO, l.Batch > mostMsg:
		return fmt.Errorf("%d times %d bytes are too many to write before they are read", l.Batch, l.Size)
	case l.Size == 0 && (l.Network.Stream() || l.Write == Sendfile || l.Write == Splice):
		return errors.New("only datagrams can be empty")
	case l.Read == Splice && !l.Network.Stream():
		return errors.New("datagrams cannot be spliced from a socket")
	}
	return nil
}

type ioArg struct {
	Addr4, Addr6 string
	Loads        []Load
}

type ioReady struct {
	Ends  []Ends
	Setup Tally
}

// doIO is the body.
func doIO(c *Child) error {
	var arg ioArg
	if err := c.Arg(&arg); err != nil {
		return err
	}
	var ready ioReady
	var lines []*line
	for _, l := range arg.Loads {
		addr := arg.Addr4
		if l.Network.Family() == unix.AF_INET6 {
			addr = arg.Addr6
		}
		x, err := newLine(l, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Network, err)
		}
		lines = append(lines, x)
		ready.Ends = append(ready.Ends, x.ends())
	}
	ready.Setup = TakeTally()
	if err := c.Report(ready); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var res []LoadResult
	for _, x := range lines {
		r, err := x.run()
		if err != nil {
			return fmt.Errorf("%s, %s, %s: %w", x.Network, x.Write, x.Read, err)
		}
		r.Tally = TakeTally()
		res = append(res, r)
	}
	return c.Report(res)
}
