// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"debug/elf"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReleaseCode unmaps the pages of the binary that are mapped by now: those that the
// initialisation of packages has touched, with the 64 KB that the kernel maps around
// each. No command needs most of them again. They stay in the page cache, and are mapped
// again when they are touched.
func ReleaseCode() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil || !fixed() {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line) // 00400000-012dd000 r-xp 00000000 fd:00 1234 /usr/bin/seine
		if len(f) != 6 || string(f[5]) != exe || f[1][1] == 'w' {
			continue
		}
		from, to, _ := bytes.Cut(f[0], []byte("-"))
		lo, err1 := strconv.ParseUint(string(from), 16, 64)
		hi, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 == nil && err2 == nil && lo < hi {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(lo), uintptr(hi-lo), unix.MADV_DONTNEED)
		}
	}
}

// fixed reports whether the binary is loaded at the address that it was linked for.
// Otherwise the loader has written into it, also into pages that are read-only by now.
func fixed() bool {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	var head [elf.EI_NIDENT + 1]byte
	_, err = f.ReadAt(head[:], 0)
	return err == nil && elf.Type(head[elf.EI_NIDENT]) == elf.ET_EXEC
}
