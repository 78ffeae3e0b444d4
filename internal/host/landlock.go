// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Lock restricts this process by Landlock (since 5.13): it may not execute programs, may
// not write, create or remove files, and since 6.7 may not use TCP. Reading is not
// restricted, and open files stay open. It is called after Keep. It also denies
// everything that needs permission to trace other processes, such as /proc/PID/maps.
func Lock() error { return LockExcept() }

// LockExcept is Lock, except that files in these directories may be written,
// created and removed.
func LockExcept(writable ...string) error {
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return fmt.Errorf("no Landlock: %w", errors.ErrUnsupported)
	} else if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	attr, size := rules(int(abi))
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: rules: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, dir := range writable {
		if err := allow(fd, attr.Access_fs, dir); err != nil {
			return fmt.Errorf("landlock: %s: %w", dir, err)
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// allow permits writing files in a directory, as far as the rules cover that.
func allow(rules uintptr, refused uint64, dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	beneath := unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: refused & (unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE)}
	_, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// rules is the accesses to refuse that a version of Landlock supports, and the
// size of the struct that it knows.
func rules(abi int) (unix.LandlockRulesetAttr, uintptr) {
	attr := unix.LandlockRulesetAttr{
		Access_fs: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
			unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
			unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
			unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
			unix.LANDLOCK_ACCESS_FS_MAKE_SYM,
	}
	size := unsafe.Sizeof(attr.Access_fs)
	if abi >= 2 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size += unsafe.Sizeof(attr.Access_net)
	}
	return attr, size
}
