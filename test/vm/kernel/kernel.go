// SPDX-License-Identifier: Apache-2.0

// Package kernel keeps the kernels of the test matrix: Debian's, in the user's
// cache directory, each with its configuration, its BTF and the modules that
// tests need.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An origin is the suite and the architecture that a kernel comes from.
type origin struct{ name, suite, arch string }

var origins = []origin{
	{"5.10", "bullseye", "amd64"},
	{"6.1", "bookworm", "amd64"},
	{"6.12", "trixie", "amd64"},
	{"new", "sid", "amd64"}, // the newest version
	{"6.12-arm64", "trixie", "arm64"},
}

// ErrNotCached means that a kernel has to be fetched first.
var ErrNotCached = errors.New("not in the cache")

// A Kernel is a cached kernel. Its files are not to be changed.
type Kernel struct {
	Name    string // of the matrix: 6.12
	Arch    string // as Go and Debian say: amd64
	Version string // as uname -r says: 6.12.116+deb13-amd64
	Dir     string // holds the files below
	Vmlinuz string // the image that Debian boots
	Config  string // its .config
	BTF     string // raw BTF of vmlinux, what the kernel shows as /sys/kernel/btf/vmlinux
}

// Names lists the kernels of an architecture, oldest first; without one the
// whole matrix.
func Names(arch string) []string {
	var names []string
	for _, o := range origins {
		if arch == "" || o.arch == arch {
			names = append(names, o.name)
		}
	}
	return names
}

// Arch is the architecture of a kernel of the matrix.
func Arch(name string) (string, error) {
	o, err := originOf(name)
	return o.arch, err
}

// Cached returns a kernel that Fetch has left in the cache, or ErrNotCached.
func Cached(name string) (Kernel, error) {
	from, err := originOf(name)
	if err != nil {
		return Kernel{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, err
	}
	dirs, err := versions(cache, name)
	if err != nil {
		return Kernel{}, err
	}
	if len(dirs) == 0 {
		return Kernel{}, fmt.Errorf("kernel %s: %w: run go run ./test/vm fetch %[1]s", name, ErrNotCached)
	}
	return at(from, dirs[0]), nil
}

// at is the kernel whose directory is dir. Directories appear in the cache by
// rename, so one that is there is complete.
func at(from origin, dir string) Kernel {
	return Kernel{
		Name:    from.name,
		Arch:    from.arch,
		Version: strings.TrimPrefix(filepath.Base(dir), from.name+"-"),
		Dir:     dir,
		Vmlinuz: filepath.Join(dir, "vmlinuz"),
		Config:  filepath.Join(dir, "config"),
		BTF:     filepath.Join(dir, "vmlinux.btf"),
	}
}

// versions lists the directories of one name, the one fetched last first. There
// is more than one only when a fetch was cut short. A version begins with a
// digit, so 6.12-arm64-6.12.9 is none of 6.12.
func versions(cache, name string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(cache, name+"-[0-9]*"))
	if err != nil {
		return nil, err
	}
	age := map[string]int64{}
	for _, d := range dirs {
		info, err := os.Stat(d)
		if err != nil {
			return nil, err
		}
		age[d] = info.ModTime().UnixNano()
	}
	slices.SortFunc(dirs, func(a, b string) int { return int(min(1, max(-1, age[b]-age[a]))) })
	return dirs, nil
}

func originOf(name string) (origin, error) {
	for _, o := range origins {
		if o.name == name {
			return o, nil
		}
	}
	return origin{}, fmt.Errorf("no kernel is called %q: the names are %s", name, strings.Join(Names(""), " "))
}

func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "seine", "kernels")
	return dir, os.MkdirAll(dir, 0o755)
}
