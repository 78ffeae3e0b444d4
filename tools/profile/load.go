// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// bulk is n bytes, or on an emulated machine fewer, which take as long.
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

// burnHere is the hot function.
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

// busy calls f until it has used the given processor time, and reports the time
// that it used.
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

// cpuTime is the processor time of this thread.
func cpuTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
