// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// bulk is so many bytes, or what takes as long where the machine is emulated.
func bulk(bytes int) int {
	if lab.Emulated() {
		return bytes / 50
	}
	return bytes
}

// transfer is a bulk transfer over one connection.
func transfer(w *lab.World, bytes int) error {
	return lab.RunTCP(w, lab.Sessions{Send: bytes, Recv: 1, ClientComm: "sender", ServerComm: "receiver"})
}

const (
	bodyBurn   = "profile-burn"
	bodyCalls  = "profile-calls"
	bodyPinned = "profile-pinned"
)

func init() {
	lab.Register(bodyBurn, func(c *lab.Child) error { return busy(c, burnHere) })
	lab.Register(bodyCalls, func(c *lab.Child) error { return busy(c, callKernel) })
	lab.Register(bodyPinned, func(c *lab.Child) error {
		cpu, err := lab.Pin(int(c.Comm[len(c.Comm)-1] - '0'))
		if err != nil {
			return err
		}
		if err := c.Report(cpu); err != nil {
			return err
		}
		return busy(c, burnHere)
	})
}

var burned uint64

// burnHere is where the time goes.
//
//go:noinline
func burnHere() {
	n := burned
	for i := range uint64(1 << 16) {
		n = n*6364136223846793005 + i
	}
	burned = n
}

// callKernel is in the kernel almost all of the time: each read clears a mebibyte.
//
//go:noinline
func callKernel() { unix.Read(zeroes, block) }

var (
	zeroes int
	block  []byte
)

// busy calls f until it has used as much processor time as it was told to, and
// reports how much that was.
func busy(c *lab.Child, f func()) (err error) {
	var want time.Duration
	if err := c.Arg(&want); err != nil {
		return err
	}
	block = make([]byte, 1<<20)
	if zeroes, err = unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	callKernel() // its memory is there from now on
	if err := c.Await("go"); err != nil {
		return err
	}
	start := cpuTime()
	for cpuTime()-start < want {
		f()
	}
	return c.Report(cpuTime() - start)
}

// cpuTime is what this thread has used.
func cpuTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// idleTime is how long all processors had nothing to do since they were started.
func idleTime() (time.Duration, error) {
	t, err := times()
	return t[3] + t[4], err
}

// stolenTime is how long the host had all processors do something else. A process
// does not use that time, though samples are taken of it.
func stolenTime() (time.Duration, error) {
	t, err := times()
	return t[7], err
}

// times is the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
func times() (t [8]time.Duration, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	var ticks [8]int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]); err != nil {
		return t, fmt.Errorf("/proc/stat: %w", err)
	}
	for i, n := range ticks {
		t[i] = time.Duration(n) * 10 * time.Millisecond
	}
	return t, nil
}
