// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netPort is struct landlock_net_port_attr, and ruleNetPort its kind of rule.
type netPort struct{ access, port uint64 }

const ruleNetPort = 2

// Confine restricts this process: it may read only files beneath the paths, and connect by TCP
// only to these ports. It can neither write nor run anything, nor listen at more addresses. Paths
// that do not exist are left out. It is called after Keep, and needs Landlock (5.13; TCP since
// 6.7). Landlock does not look at MPTCP and UDP.
func Confine(reads []string, connects []uint16) error {
	abi, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return fmt.Errorf("no Landlock: %w", errors.ErrUnsupported)
	} else if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	attr, size := rules(int(abi))
	const reading = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	attr.Access_fs |= reading
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: rules: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, path := range reads {
		if err := allowReads(fd, path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("landlock: %s: %w", path, err)
		}
	}
	if attr.Access_net != 0 {
		for _, port := range connects {
			net := netPort{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)}
			if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, ruleNetPort, uintptr(unsafe.Pointer(&net)), 0, 0, 0); errno != 0 {
				return fmt.Errorf("landlock: port %d: %w", port, errno)
			}
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// allowReads lets a file, or the files in a directory, be read.
func allowReads(rules uintptr, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	access := uint64(unix.LANDLOCK_ACCESS_FS_READ_FILE)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	beneath := unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: access}
	if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
