// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Hang is a call that the process begins and that nobody ends: a connect, or,
// without an address, an accept on 127.0.0.1.
type Hang struct {
	Network Network `json:"network"`
	Addr    string  `json:"addr"`    // to connect to; empty: listen and accept
	Waits   bool    `json:"waits"`   // the call itself waits, in a thread of its own
	Closes  bool    `json:"closes"`  // close the socket once the call is under way
	Receive bool    `json:"receive"` // read from the socket in a thread of its own

	// The result: the monotonic clock before the call, and when it was seen to be
	// under way; the local port.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Port   int   `json:"port"`
}

// Hangs is a process whose calls hang until it is told to end.
type Hangs struct{ *Proc }

const bodyHang = "hang"

func init() { Register(bodyHang, hang) }

// StartHangs starts a process in a host that is ready to make the calls.
func StartHangs(w *World, host, comm string, all ...Hang) (*Hangs, error) {
	p, err := w.StartReady(host, comm, bodyHang, all)
	return &Hangs{p}, err
}

// Begin makes the calls and returns when all are under way.
func (h *Hangs) Begin() (out []Hang, err error) { return out, h.Call("go", &out) }

// End ends the process, and with it the calls.
func (h *Hangs) End() { h.Kill() }

// hang is the body.
func hang(c *Child) error {
	var all []Hang
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
		if err := all[i].begin(); err != nil {
			return fmt.Errorf("%s %s: %w", all[i].Network, all[i].Addr, err)
		}
	}
	if err := c.Report(all); err != nil {
		return err
	}
	return c.Await("end")
}

func (h *Hang) begin() error {
	if h.Addr == "" {
		fd, port, err := Listen(h.Network, "127.0.0.1:0", 16)
		if err != nil {
			return err
		}
		h.Port = port
		return h.wait(fd, func() error { _, _, err := unix.Accept4(fd, 0); return err }, nil)
	}
	sa, err := h.Network.Sockaddr(h.Addr)
	if err != nil {
		return err
	}
	fd, err := Socket(h.Network)
	if err != nil {
		return err
	}
	if h.Waits {
		err = h.wait(fd, func() error { return unix.Connect(fd, sa) }, func() bool {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			return err == nil && info.State == 2 // SYN_SENT
		})
	} else {
		err = h.connect(fd, sa)
	}
	if err != nil {
		return err
	}
	if h.Port, err = LocalPort(fd); err != nil {
		return err
	}
	if h.Receive {
		go unix.Read(fd, make([]byte, 1))
	}
	if h.Closes {
		return Close(fd)
	}
	return nil
}

// connect does not wait for an answer.
func (h *Hang) connect(fd int, sa unix.Sockaddr) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	h.Before = mono()
	err := unix.Connect(fd, sa)
	h.After = mono()
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return unix.SetNonblock(fd, false)
}

// wait makes the call in a thread of its own and returns when it is under way: when
// seen says so, else when the thread sleeps.
func (h *Hang) wait(fd int, call func() error, seen func() bool) error {
	var thread atomic.Int32
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		h.Before = mono()
		thread.Store(int32(unix.Gettid()))
		failed <- call()
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if tid := thread.Load(); tid != 0 && (seen == nil && asleep(int(tid)) || seen != nil && seen()) {
			h.After = mono()
			return nil
		}
		select {
		case err := <-failed:
			return fmt.Errorf("the call ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			return errors.New("the call did not begin to wait")
		}
	}
}

// asleep says whether a thread of this process waits for something.
func asleep(thread int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && bytes.HasPrefix(state, []byte("S"))
}

// mono is the clock that bpf_ktime_get_ns reads.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}
