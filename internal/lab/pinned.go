// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	seinehost "seine/internal/host"
)

// Pinned is a process that sends itself datagrams over loopback, one after the
// other, on one processor. Each is received in softirq before the call that
// sends it returns.
type Pinned struct {
	*Proc
	CPU  int
	Port int
}

// Pin binds the calling thread to one of its processors, the nth modulo their
// number, and returns its number.
func Pin(n int) (cpu int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, fmt.Errorf("lab: processors: %w", err)
	}
	n %= set.Count()
	for cpu = 0; n > 0 || !set.IsSet(cpu); cpu++ {
		if set.IsSet(cpu) {
			n--
		}
	}
	set.Zero()
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return 0, fmt.Errorf("lab: processor %d: %w", cpu, err)
	}
	return cpu, nil
}

// OnEachCPU runs briefly on each processor that it may use. Interrupts and softirqs that
// ran there before have ended then.
func OnEachCPU() error {
	done := make(chan error, 1)
	seinehost.OnThread(func() { done <- eachCPU(func() error { return nil }) })
	return <-done
}

// eachCPU has the calling thread do something on each processor that it may use.
func eachCPU(do func() error) error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("lab: processors: %w", err)
	}
	for n := range all.Count() {
		_, err := Pin(n)
		if err == nil {
			err = do()
		}
		if err := errors.Join(err, unix.SchedSetaffinity(0, &all)); err != nil {
			return err
		}
	}
	return nil
}

// PinChildren binds the children that are started from now on to one processor, where
// no packet overtakes another.
func (w *World) PinChildren() error {
	for _, h := range w.hosts {
		if err := h.do(func() error { _, err := Pin(0); return err }); err != nil {
			return err
		}
	}
	return nil
}

const bodyPinned = "pinned"

func init() { Register(bodyPinned, pinnedBody) }

// StartPinned starts it; Run sends the datagrams.
func StartPinned(w *World, comm string, count int) (*Pinned, error) {
	p, err := w.Start("", comm, bodyPinned, count)
	if err != nil {
		return nil, err
	}
	x := &Pinned{Proc: p}
	var at [2]int
	if err := p.Expect(&at); err != nil {
		return nil, err
	}
	x.CPU, x.Port = at[0], at[1]
	return x, nil
}

// Run sends the datagrams, returns how long that took, and ends the process.
func (x *Pinned) Run() (took time.Duration, err error) {
	if err := x.Call("go", &took); err != nil {
		return 0, err
	}
	return took, x.Wait()
}

func pinnedBody(c *Child) error {
	var count int
	if err := c.Arg(&count); err != nil {
		return err
	}
	cpu, err := Pin(1)
	if err != nil {
		return err
	}
	to, port, err := Bind(UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	from, err := Connect(UDP4, fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	if err := c.Report([2]int{cpu, port}); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	buf := make([]byte, 64)
	start := time.Now()
	for i := range count {
		if _, err := unix.Write(from, buf); err != nil {
			return fmt.Errorf("datagram %d of %d: %w", i+1, count, err)
		}
		if _, err := unix.Read(to, buf); err != nil {
			return fmt.Errorf("datagram %d of %d: %w", i+1, count, err)
		}
	}
	return c.Report(time.Since(start))
}
