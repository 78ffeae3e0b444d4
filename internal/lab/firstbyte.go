// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FirstByte is a connection whose connecting end reads one message, or none.
type FirstByte struct {
	Network Network `json:"network"`
	Read    Call    `json:"read"` // how; "" is not at all
	// Late shuts the connection down from both ends before the message is read.
	Late bool `json:"late"`
	// Served makes the accepting end read instead of the connecting one.
	Served bool `json:"served"`
	Port   int  `json:"port"` // of the connecting end, in the result
}

// FirstBytes is a process that is ready to make such connections to itself, one
// after the other, so that descriptors are reused.
type FirstBytes struct{ *Proc }

const bodyFirstBytes = "firstbytes"

// StartFirstBytes starts the process.
func StartFirstBytes(w *World, host, comm string, all ...FirstByte) (*FirstBytes, error) {
	p, err := w.StartReady(host, comm, bodyFirstBytes, all)
	return &FirstBytes{p}, err
}

// Run makes the connections and waits for the process to end.
func (f *FirstBytes) Run() ([]FirstByte, error) {
	var out []FirstByte
	if err := f.Call("go", &out); err != nil {
		return nil, err
	}
	return out, f.Wait()
}

func doFirstBytes(c *Child) error {
	var all []FirstByte
	if err := c.Arg(&all); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for i := range all {
		if err := all[i].make(); err != nil {
			return fmt.Errorf("%s %s: %w", all[i].Network, all[i].Read, err)
		}
	}
	return c.Report(all)
}

func (f *FirstByte) make() error {
	addr := "127.0.0.1:0"
	if f.Network.Family() == unix.AF_INET6 {
		addr = "[::1]:0"
	}
	l := Load{Network: f.Network, Read: f.Read, Count: 1, Size: 5}
	if err := l.defaults(); err != nil {
		return err
	}
	x, err := newLine(l, addr)
	if err != nil {
		return err
	}
	if f.Served {
		// as it is: the end that connected writes
	} else if f.Network.Stream() {
		x.w, x.r = x.r, x.w // the end that connected reads
		if f.Port, err = LocalPort(x.r); err != nil {
			return err
		}
	} else if err := x.answer(); err != nil {
		return err
	}
	if f.Late {
		if err := unix.Shutdown(x.r, unix.SHUT_WR); err != nil {
			return err
		}
	}
	copy(x.out, "hello")
	if err := writers[Write](x); err != nil {
		return err
	}
	if f.Late {
		Close(x.w)
		x.w = -1
	}
	if f.Read != "" {
		if err := readers[f.Read](x); err != nil {
			return err
		}
	}
	ends := []int{x.w, x.r}
	if f.Read == "" {
		// With this order the next accepted socket is likely to get the
		// memory of the socket that connected and has read nothing.
		ends = []int{x.r, x.w}
	}
	for _, fd := range ends {
		if fd >= 0 {
			Close(fd)
		}
	}
	if x.ring != nil {
		x.ring.Close()
	}
	return nil
}

// answer makes the bound end of datagrams the one that writes.
func (x *line) answer() error {
	sa, err := unix.Getsockname(x.w)
	if err != nil {
		return err
	}
	x.w, x.r = x.r, x.w
	return unix.Connect(x.w, sa)
}
