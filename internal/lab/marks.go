// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Marks is how many UDP datagrams to send with each ECN mark.
type Marks struct {
	Network              Network // UDP4 or UDP6
	Addr                 string  // as Network.Sockaddr takes it
	None, ECT1, ECT0, CE int
	Size                 int // bytes of each; default 100
	// Segments is the number of datagrams in each send (UDP_SEGMENT). The
	// kernel keeps them together as long as it can. Default 1.
	Segments int
	// Stepwise makes each send wait for Step, and makes all sends on one
	// processor.
	Stepwise bool
}

// Bytes is how many bytes of payload all of them have.
func (m Marks) Bytes() int {
	setDefault(&m.Size, 100)
	return (m.None + m.ECT1 + m.ECT0 + m.CE) * m.Size * max(m.Segments, 1)
}

// Marking is a process that is ready to send.
type Marking struct {
	*Proc
	Port int // its own
}

const bodyMarks = "marks"

func init() { Register(bodyMarks, marksBody) }

// StartMarks starts a process in a host that has its socket open.
func StartMarks(w *World, host, comm string, m Marks) (*Marking, error) {
	p, err := w.Start(host, comm, bodyMarks, m)
	if err != nil {
		return nil, err
	}
	x := &Marking{Proc: p}
	return x, p.Expect(&x.Port)
}

// Run sends all of them and waits for the process to end.
func (x *Marking) Run() error {
	if err := x.Tell("go"); err != nil {
		return err
	}
	return x.Wait()
}

// Step makes the next send, and returns when it is made.
func (x *Marking) Step() error {
	var done bool
	return x.Call("step", &done)
}

func marksBody(c *Child) error {
	var m Marks
	if err := c.Arg(&m); err != nil {
		return err
	}
	fd, err := Connect(m.Network, m.Addr)
	if err != nil {
		return err
	}
	defer Close(fd)
	port, err := LocalPort(fd)
	if err != nil {
		return err
	}
	if err := c.Report(port); err != nil {
		return err
	}
	if m.Stepwise {
		_, err = Pin(0)
	} else {
		err = c.Await("go")
	}
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_TOS
	if m.Network.Family() == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	setDefault(&m.Size, 100)
	if m.Segments > 1 {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, m.Size); err != nil {
			return unsupported("UDP_SEGMENT", err)
		}
	}
	for mark, count := range []int{m.None, m.ECT1, m.ECT0, m.CE} {
		if err := unix.SetsockoptInt(fd, level, option, mark); err != nil {
			return fmt.Errorf("mark %d: %w", mark, err)
		}
		for range count {
			if m.Stepwise {
				if err := c.Await("step"); err != nil {
					return err
				}
			}
			if _, err := unix.Write(fd, make([]byte, m.Size*max(m.Segments, 1))); err != nil {
				return err
			}
			if m.Stepwise {
				if err := c.Report(true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
