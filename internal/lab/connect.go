// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Attempt is one connect and its expected result.
type Attempt struct {
	Name    string        `json:"name"` // for messages: "refused"
	Network Network       `json:"network"`
	Addr    string        `json:"addr"` // as Network.Sockaddr takes it
	Mode    Mode          `json:"mode"`
	Want    syscall.Errno `json:"want"` // the expected error; 0 is success
	// Hasty makes TCP give up on a silent peer after about one second and two
	// SYNs: TCP_SYNCNT 1 and a short TCP_USER_TIMEOUT.
	Hasty bool `json:"hasty"`
	// From is the address that the socket is bound to first; default: none.
	From string `json:"from"`
	// Again takes the socket of the attempt before this one.
	Again bool `json:"again"`
}

// Mode is a way to connect.
type Mode string

const (
	// Blocking is a connect(2) that waits.
	Blocking Mode = ""
	// Nonblocking is a connect(2) that does not, then poll(2) and SO_ERROR.
	Nonblocking Mode = "nonblock"
	// Asked is a connect(2) that does not wait, then poll(2), and a second
	// connect(2), which returns the result.
	Asked Mode = "asked"
	// Unfollowed is a connect(2) that does not wait, and nobody asks for its result.
	// The next attempt comes after the answer, or after ten milliseconds, because a
	// missing answer cannot be awaited. The socket stays open until all attempts are
	// made. With fewer than a hundred attempts no SYN is sent twice.
	Unfollowed Mode = "unfollowed"
	// ByUring connects through io_uring.
	ByUring Mode = "uring"
)

// Outcome is how an attempt ended, by the process's own stopwatch.
type Outcome struct {
	Attempt Attempt       `json:"attempt"`
	Call    syscall.Errno `json:"call"`    // what connect(2) returned
	Errno   syscall.Errno `json:"errno"`   // the result of the connection
	CallNS  int64         `json:"call_ns"` // the connect call
	NS      int64         `json:"ns"`      // until the result was known
	Port    int           `json:"port"`    // local, 0 if none
}

// Connects is a process that is ready to make attempts.
type Connects struct {
	*Proc
	Attempts []Attempt
}

const bodyConnect = "connect"

func init() { Register(bodyConnect, makeAttempts) }

// StartConnects starts a process in a host that will make the attempts, one
// after the other.
func StartConnects(w *World, host, comm string, attempts ...Attempt) (*Connects, error) {
	p, err := w.Start(host, comm, bodyConnect, attempts)
	if err != nil {
		return nil, err
	}
	return &Connects{p, attempts}, nil
}

// Run makes the attempts and waits for the process to end. An attempt with
// another result than expected is an error.
func (c *Connects) Run() ([]Outcome, error) {
	var out []Outcome
	if err := c.Call("go", &out); err != nil {
		return nil, err
	}
	errs := []error{c.Wait()}
	for _, o := range out {
		if a := o.Attempt; o.Errno != a.Want {
			errs = append(errs, fmt.Errorf("lab: connect %s %s (%s): %v, want %v", a.Network, a.Addr, a.Name, o.Errno, a.Want))
		}
	}
	return out, errors.Join(errs...)
}

// makeAttempts is the body.
func makeAttempts(c *Child) error {
	var attempts []Attempt
	if err := c.Arg(&attempts); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var out []Outcome
	fd := -1
	for i, a := range attempts {
		if !a.Again {
			var err error
			if fd, err = bound(a.Network, a.From); err != nil {
				return err
			}
		}
		o, err := a.make(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		out = append(out, o)
		if i+1 < len(attempts) && attempts[i+1].Again {
			continue
		}
		if a.Mode == Unfollowed {
			defer Close(fd)
		} else if err := Close(fd); err != nil {
			return err
		}
	}
	return c.Report(out)
}

// make connects fd. It returns an error if the attempt could not be made, not
// the result of the connect.
func (a Attempt) make(fd int) (Outcome, error) {
	o := Outcome{Attempt: a}
	sa, err := a.Network.Sockaddr(a.Addr)
	if err != nil {
		return o, err
	}
	if a.Hasty {
		if err := hasty(fd); err != nil {
			return o, err
		}
	}
	if a.Mode == Nonblocking || a.Mode == Asked || a.Mode == Unfollowed {
		if err := unix.SetNonblock(fd, true); err != nil {
			return o, err
		}
	}
	k, err := newCaller(a.Mode == ByUring)
	if err != nil {
		return o, err
	}
	defer k.close()
	start := time.Now()
	err = k.connect(fd, sa)
	o.CallNS = int64(time.Since(start))
	o.Call = errnoOf(err)
	if errors.Is(err, unix.EINPROGRESS) {
		switch a.Mode {
		case Nonblocking:
			err = connected(fd)
		case Asked:
			if err = ended(fd); err == nil {
				err = k.connect(fd, sa)
			}
		}
	}
	o.NS = int64(time.Since(start))
	o.Errno = errnoOf(err)
	if a.Mode == Unfollowed {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 10); err != nil {
			return o, err
		}
	}
	if sa, err := unix.Getsockname(fd); err == nil {
		o.Port = portOf(sa)
	}
	return o, nil
}

// hasty lets a connect time out after its first retransmission.
func hasty(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 500),
	)
}
