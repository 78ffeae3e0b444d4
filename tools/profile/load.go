// SPDX-License-Identifier: Apache-2.0

package profile

import (
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
