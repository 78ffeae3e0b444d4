// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strconv"
	"strings"
)

// File is embedded in the config of tools that write packets into files.
type File struct {
	Path string `flag:"write" short:"w" help:"write pcapng to this file; - is stdout"`
	Ring string `flag:"ring" help:"write to a ring of files: 10x64M is ten files of 64 MiB each"`
}

// Writes are the files that a run writes to.
func (f *File) Writes() *File { return f }

// Files are the names of the files, and how many bytes each may have; 0: any number.
func (f *File) Files() (names []string, size int64, err error) {
	if f.Path == "" && f.Ring != "" {
		return nil, 0, Usagef("--ring: name the file with -w")
	}
	if f.Path == "" || f.Ring == "" {
		return []string{f.Path}, 0, nil
	}
	if f.Path == "-" {
		return nil, 0, Usagef("--ring: stdout is one file")
	}
	n, rest, _ := strings.Cut(f.Ring, "x")
	count, err := strconv.Atoi(n)
	bytes, sizeErr := ParseSize(rest)
	if err != nil || sizeErr != nil || count < 2 || count > 1000 {
		return nil, 0, Usagef("--ring %q: write 10x64M: 2 to 1000 files, and the size of each", f.Ring)
	}
	if bytes < ringLeast {
		return nil, 0, Usagef("--ring: a file must have at least 1M")
	}
	base, ext := f.Path, ""
	if i := strings.LastIndexByte(base, '.'); i > strings.LastIndexByte(base, '/')+1 {
		base, ext = base[:i], base[i:]
	}
	width := len(strconv.Itoa(count - 1))
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%0*d%s", base, width, i, ext))
	}
	return names, int64(bytes), nil
}

// ringLeast is the smallest file of --ring: some packets of 64 KB, and the devices.
const ringLeast = 1 << 20

// Check refuses flags that exclude each other.
func (f *File) Check() error {
	_, _, err := f.Files()
	return err
}

// ParseSize reads 65536, 64k, 4M, 1G: powers of 1024.
func ParseSize(s string) (uint64, error) {
	digits := strings.TrimRight(strings.ToLower(s), "kmgib")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a valid size: write 65536, 64k or 4M", s)
	}
	shift := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30}
	by, ok := shift[strings.ToLower(s[len(digits):])]
	if !ok || n > 1<<40>>by {
		return 0, fmt.Errorf("%q is not a valid size: write 65536, 64k or 4M", s)
	}
	return n << by, nil
}
