// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestThread: --pid takes processes; the id of a thread would match nothing.
func TestThread(t *testing.T) {
	pid, thread := os.Getpid(), make(chan int)
	done := make(chan struct{})
	defer close(done)
	for range 2 { // one of them may be the first
		go func() {
			runtime.LockOSThread()
			thread <- unix.Gettid()
			<-done
		}()
	}
	tid := max(<-thread, <-thread)
	if got, err := parsePIDs(fmt.Sprint(pid)); err != nil || !slices.Equal(got, []uint32{uint32(pid)}) {
		t.Errorf("process %d: %v, %v", pid, got, err)
	}
	got, err := parsePIDs(fmt.Sprint(tid))
	if want := fmt.Sprintf("%d is a thread of process %d: give the process id", tid, pid); err == nil || err.Error() != want {
		t.Errorf("thread: %v, %v, want %s", got, err, want)
	}
}
