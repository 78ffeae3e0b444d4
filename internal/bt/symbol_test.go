// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// needLookUp skips where the kernel, before 5.16, does not tell a program an address.
func needLookUp(t *testing.T) {
	needRoot(t)
	if err := features.HaveProgramHelper(ebpf.Syscall, asm.FnKallsymsLookupName); errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
}

// TestAddress asks for addresses one by one and has the list of all say the same.
func TestAddress(t *testing.T) {
	needLookUp(t)
	k := newKernel()
	for _, name := range []string{"tcp_sendmsg", "tcp_v4_connect", "vfs_read"} {
		at, err := lookUp(name)
		if err != nil || at == 0 || at != k.symbols()[name] || at != k.address(name) {
			t.Errorf("%s is at %x (%v), want %x", name, at, err, k.symbols()[name])
		}
	}
	for _, name := range []string{"tcp_sendmsg_of_nobody", "", strings.Repeat("long_", 60)} {
		if at, err := lookUp(name); err == nil || name == "tcp_sendmsg_of_nobody" && !errors.Is(err, unix.ENOENT) {
			t.Errorf("%q is at %x: %v", name, at, err)
		}
		if at := k.address(name); at != 0 {
			t.Errorf("%q is at %x", name, at)
		}
	}
}

// TestNamedOnly compiles what names its functions without the list of them all.
func TestNamedOnly(t *testing.T) {
	needLookUp(t)
	k := loadOnly()
	k.functions = func() (functionList, error) { t.Error("the list of all functions was read"); return "", nil }
	k.symbols = func() map[string]uint64 { t.Error("the list of all symbols was read"); return nil }
	s := must(Parse(&Source{Name: "-e", Text: `k:tcp_sendmsg { @[func] = count(); } kr:tcp_sendmsg { @h = hist(retval); @at = kaddr("tcp_sendmsg"); }`}))
	if _, err := compile(s, k, Options{}); err != nil {
		t.Error(err)
	}
}
