// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// KernelVersion is the release of the running kernel, as `uname -r` has it.
func KernelVersion() string { return kernelRelease() }

var kernelRelease = sync.OnceValue(func() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
})

// TracepointsPreempt reports whether a task can be preempted inside of a
// tracepoint. BTF does not show it.
func TracepointsPreempt() bool { return !olderThan(KernelVersion(), 7, 0) }

// olderThan compares the first two numbers of a release. A release that cannot
// be parsed is not older. It is not used where BTF can decide, because stable
// kernels backport changes.
func olderThan(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}

// Sysctl reads a value such as kernel.unprivileged_bpf_disabled. Slashes may
// stand for the dots, as in sysctl(8), where a name has dots of its own.
func Sysctl(name string) (value string, ok bool) {
	if !strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, ".", "/")
	}
	if !filepath.IsLocal(name) {
		return "", false
	}
	data, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return "", false
	}
	return strings.TrimSuffix(string(data), "\n"), true
}

// ConfigValue reads an option of the kernel's configuration, with or without
// CONFIG_: "y", "m", a number, a string without its quotes. An option that the
// configuration does not set is "n", also when it does not mention it, as is the
// case when something that it depends on is not set. ok is false where the
// configuration cannot be read: then nothing is known.
func ConfigValue(name string) (value string, ok bool) {
	config := kernelConfig()
	if config == nil {
		return "", false
	}
	value, ok = config["CONFIG_"+strings.TrimPrefix(name, "CONFIG_")]
	if !ok {
		value = "n"
	}
	return value, true
}

var kernelConfig = sync.OnceValue(func() map[string]string {
	return firstConfig("/proc/config.gz",
		"/boot/config-"+KernelVersion(),
		"/usr/lib/modules/"+KernelVersion()+"/config")
})

func firstConfig(paths ...string) map[string]string {
	for _, path := range paths {
		if config := readConfig(path); config != nil {
			return config
		}
	}
	return nil
}

// maxConfig is ten times the size of the largest configuration.
const maxConfig = 4 << 20

func readConfig(path string) map[string]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil
		}
		defer z.Close()
		r = z
	}
	config := make(map[string]string)
	lines := bufio.NewScanner(io.LimitReader(r, maxConfig))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok || !strings.HasPrefix(key, "CONFIG_") {
			continue
		}
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		config[key] = value
	}
	if lines.Err() != nil || len(config) == 0 {
		return nil
	}
	return config
}

// Memlock raises the limit on locked memory, to which kernels before 5.11 charge
// BPF maps; later ones charge them to the cgroup. It returns an error only if
// the limit is likely to matter.
func Memlock() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("reading RLIMIT_MEMLOCK: %w", err)
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return nil
	}
	err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	if err == nil {
		return nil
	}
	// Raising it up to the hard limit needs no capability.
	if limit.Cur < limit.Max && unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}) == nil {
		limit.Cur = limit.Max
	}
	return memlockError(KernelVersion(), limit.Cur, err)
}

// MemlockLimited reports whether this kernel charges maps to RLIMIT_MEMLOCK, so
// that CAP_SYS_RESOURCE helps.
func MemlockLimited() bool { return olderThan(KernelVersion(), 5, 11) }

func memlockError(release string, limit uint64, err error) error {
	const enough = 64 << 20
	if limit >= enough || !olderThan(release, 5, 11) {
		return nil
	}
	return fmt.Errorf("RLIMIT_MEMLOCK is %d KiB, which kernel %s charges BPF maps to, and cannot be raised: %w: "+
		"run as root or with CAP_SYS_RESOURCE, or try `ulimit -l unlimited`", limit>>10, release, err)
}
