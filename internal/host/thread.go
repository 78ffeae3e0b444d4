// SPDX-License-Identifier: Apache-2.0

package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs fn on an operating-system thread of its own and returns at
// once. The thread ends with fn, so fn may change its network namespace.
//
// The main thread must not be used: Go cannot end it, and /proc/self/ns/net
// would show the wrong namespace from then on. If the scheduler picks the main
// thread, OnThread holds it until another goroutine, which cannot run on it
// then, has finished.
func OnThread(fn func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			fn()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			fn()
		}()
		<-done
	}()
}
