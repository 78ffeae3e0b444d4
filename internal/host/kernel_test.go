// SPDX-License-Identifier: Apache-2.0

package host

import (
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKernelVersion(t *testing.T) {
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if got := KernelVersion(); got != strings.TrimSpace(string(want)) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{
		"5.10.0-28-amd64": true, "5.11": false, "5.11.0": false, "4.19.1": true, "6.1.0": false,
		"6.18.44-fc-v310": false, "10.2": false, "": false, "x.y": false, "5": false,
	} {
		if got := olderThan(release, 5, 11); got != want {
			t.Errorf("%q older than 5.11: got %v, want %v", release, got, want)
		}
	}
}

func TestSysctl(t *testing.T) {
	for _, name := range []string{"kernel.osrelease", "kernel/osrelease"} {
		if got, ok := Sysctl(name); !ok || got != KernelVersion() {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, KernelVersion())
		}
	}
	for _, name := range []string{"", "kernel.no_such_thing", "kernel", "../version", "/proc/version", "kernel/../../version"} {
		if got, ok := Sysctl(name); ok {
			t.Errorf("%s: got %q, want nothing", name, got)
		}
	}
}

const config = `#
# Linux/x86 6.1.0 Kernel Configuration
#
CONFIG_BPF=y
CONFIG_TUN=m
CONFIG_HZ=250
CONFIG_CC_VERSION_TEXT="gcc = 12"
# CONFIG_KPROBES is not set
`

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "config-1"), filepath.Join(dir, "config.gz")
	if err := os.WriteFile(plain, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(packed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(config)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	cut, junk := filepath.Join(dir, "cut.gz"), filepath.Join(dir, "junk.gz")
	whole, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(cut, whole[:len(whole)/2], 0o644), os.WriteFile(junk, []byte("no"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, paths := range [][]string{{plain}, {packed}, {filepath.Join(dir, "none"), cut, junk, plain}} {
		got := firstConfig(paths...)
		for key, want := range map[string]string{"CONFIG_BPF": "y", "CONFIG_TUN": "m", "CONFIG_HZ": "250", "CONFIG_CC_VERSION_TEXT": "gcc = 12", "CONFIG_KPROBES": ""} {
			if got[key] != want {
				t.Errorf("%v: %s: got %q, want %q", paths, key, got[key], want)
			}
		}
	}
	if got := firstConfig(filepath.Join(dir, "none"), junk); got != nil {
		t.Errorf("got %v, want nothing", got)
	}
}

func TestConfigValue(t *testing.T) {
	if _, ok := ConfigValue("NET"); !ok {
		t.Skip("no configuration can be read here")
	}
	for name, want := range map[string]string{"CONFIG_NET": "y", "NET": "y", "CONFIG_NO_SUCH_OPTION": "n"} {
		if got, ok := ConfigValue(name); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestMemlockError(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		release string
		limit   uint64
		want    bool
	}{
		{"5.10.0-28-amd64", 8 * mib, true},
		{"5.10.0-28-amd64", 64 * mib, false},
		{"5.10.0-28-amd64", unix.RLIM_INFINITY, false},
		{"5.11.0", 8 * mib, false},
		{"6.18.44", 64 << 10, false},
	} {
		err := memlockError(test.release, test.limit, unix.EPERM)
		if (err != nil) != test.want {
			t.Errorf("%s, %d: got %v, want an error: %v", test.release, test.limit, err, test.want)
		}
		if err != nil && (!errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "8192 KiB")) {
			t.Errorf("%v: want EPERM and 8192 KiB in it", err)
		}
	}
}

func TestMemlock(t *testing.T) {
	if err := Memlock(); err != nil && !olderThan(KernelVersion(), 5, 11) {
		t.Errorf("kernel %s: %v", KernelVersion(), err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur != limit.Max {
		t.Errorf("the limit is %d, though it may be %d", limit.Cur, limit.Max)
	}
}
