// SPDX-License-Identifier: Apache-2.0

package sormem

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

var addr4 = netip.MustParseAddr("127.0.0.1")

// socketDrops is how many packets the kernel says that a socket has dropped.
func socketDrops(fd int) (int, error) {
	var mem [9]uint32 // SO_MEMINFO; the last one is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(mem))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return 0, e
	}
	return int(mem[8]), nil
}
