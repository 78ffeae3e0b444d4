// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep gives up all capabilities except these, in every thread and for good: not even a
// program that root starts gets more. It never adds one. All threads must have the same
// capabilities before.
func Keep(caps ...Capability) error {
	if err := keep(caps); err != nil {
		return notGivenUp(err)
	}
	// Children of root must not regain by exec what was given up.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("no new privileges: %w", errno)
	}
	return nil
}

// notGivenUp adds the reason: only a program without C code can do it in all threads.
func notGivenUp(err error) error {
	if errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("giving up capabilities: this is a build with cgo: make one with CGO_ENABLED=0: %w", err)
	}
	return fmt.Errorf("giving up capabilities: %w", err)
}

// Without runs fn with no effective capability in its thread, and then restores
// them.
func Without(fn func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&head, &held[0]); err != nil {
		return err
	}
	none := held
	none[0].Effective, none[1].Effective = 0, 0
	if err := unix.Capset(&head, &none[0]); err != nil {
		return err
	}
	fn()
	return unix.Capset(&head, &held[0])
}

// keep sets the three sets of capset(2) in all threads: bits of capabilities, in two
// words each.
func keep(caps []Capability) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	var want [2]uint32
	for _, c := range caps {
		want[c/32] |= 1 << (c % 32)
	}
	for i := range data {
		data[i].Permitted &= want[i]
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0 // and so nothing is ambient
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
