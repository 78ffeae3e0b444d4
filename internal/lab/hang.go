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

// Hang is a call that never completes: a connect or, without an address, an
// accept on 127.0.0.1.
type Hang struct {
	Network Network `json:"network"`
	Addr    string  `json:"addr"`    // to connect to; empty: listen and accept
	Waits   bool    `json:"waits"`   // the call itself waits, in a thread of its own
	Closes  bool    `json:"closes"`  // close the socket once the call is under way
	Receive bool    `json:"receive"` // read from the socket in a thread of its own

	// The result: the monotonic time before the call, the time when it was seen
	// to be under way, and the local port.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Port   int   `json:"port"`
}

// Hangs is a process whose calls hang until it is told to end.
type Hangs struct{ *Proc }

const bodyHang = "hang"

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
		return h.wait(func() error { _, _, err := unix.Accept4(fd, 0); return err }, func(thread int) bool {
			return within(os.Getpid(), thread, unix.SYS_ACCEPT4)
		})
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
		err = h.wait(func() error { return unix.Connect(fd, sa) }, func(int) bool {
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

// wait makes the call in a thread of its own and returns when seen says that it is
// under way.
func (h *Hang) wait(call func() error, seen func(thread int) bool) error {
	var thread atomic.Int32
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		h.Before = mono()
		thread.Store(int32(unix.Gettid()))
		failed <- call()
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if tid := thread.Load(); tid != 0 && seen(int(tid)) {
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

// within reports whether a thread sleeps in a system call.
func within(pid, thread, call int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, thread))
	return err == nil && bytes.HasPrefix(b, fmt.Appendf(nil, "%d ", call))
}

// InCall reports whether a thread of this process sleeps in a system call.
func InCall(thread, call int) bool { return within(os.Getpid(), thread, call) }

// Within waits until the child's body sleeps in a system call.
func (p *Proc) Within(call int) error {
	for deadline := time.Now().Add(p.timeout); !within(p.PID, p.TID, call); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("lab: %s (pid %d): %w: not in call %d after %v", p.Comm, p.PID, ErrLate, call, p.timeout)
		}
	}
	return nil
}

// mono is the clock that bpf_ktime_get_ns reads.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}
