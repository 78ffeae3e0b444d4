// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

const kallsyms = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000040 t __pfx_tcp_sendmsg
ffffffff81000050 T tcp_sendmsg
ffffffff81000150 t schedule
ffffffff81000250 D some_data
ffffffffc0000300 t nf_init	[nf_tables]
ffffffffc0000200 t nf_hook	[nf_tables]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_sd_fw	[bpf]
garbage
ffffffffzz000200 t bad
ffffffffc0002000
`

func TestKallsyms(t *testing.T) {
	tab, err := parseKallsyms(strings.NewReader(kallsyms))
	if err != nil {
		t.Fatal(err)
	}
	var k Kernel
	k.tab.Store(tab)
	k.last.Store(1 << 62) // not to be read again
	for _, x := range []struct {
		addr   uint64
		sym    string
		off    uint64
		module string
	}{
		{0xffffffff80ffffff, "", 0, ""},
		{0xffffffff81000000, "_stext", 0, Vmlinux}, // the first of two, as in the kernel
		{0xffffffff8100003f, "_stext", 0x3f, Vmlinux},
		{0xffffffff81000045, "", 0, ""}, // padding
		{0xffffffff81000051, "tcp_sendmsg", 1, Vmlinux},
		{0xffffffff8100024f, "schedule", 0xff, Vmlinux},
		{0xffffffff81000250, "", 0, ""}, // data
		{0xffffffffc0000200, "nf_hook", 0, "nf_tables"},
		{0xffffffffc0000310, "nf_init", 0x10, "nf_tables"},
		{0xffffffffc0002010, "bpf_prog_6deef7357e7b4530_sd_fw", 0x10, "bpf"},
		{0xffffffffc0002000 + maxKernelFunc, "", 0, ""},
		{0, "", 0, ""},
		{0x7f0000000000, "", 0, ""},
		{^uint64(0), "", 0, ""},
	} {
		want := Frame{x.addr, x.sym, x.off, x.module}
		if f := k.Frame(x.addr); f != want {
			t.Errorf("got %#v, want %#v", f, want)
		}
	}
	for name, want := range map[string]uint64{
		"tcp_sendmsg": 0xffffffff81000050,
		"startup_64":  0xffffffff81000000, // the second name
		"nf_hook":     0xffffffffc0000200,
		"some_data":   0, // no function
		"tcp_send":    0,
	} {
		if addr, ok := k.Lookup(name); addr != want || ok != (want != 0) {
			t.Errorf("%s is at %#x, %v; want %#x", name, addr, ok, want)
		}
	}
	if err := k.Err(); err != nil {
		t.Errorf("got error %v", err)
	}
}

func TestKallsymsHidden(t *testing.T) {
	for text, want := range map[string]string{
		"0000000000000000 T _stext\n0000000000000000 T tcp_sendmsg\n": "kptr_restrict",
		"":                               "CONFIG_KALLSYMS",
		"ffffffff81000250 D some_data\n": "no function",
	} {
		tab, err := parseKallsyms(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives error %v, want %s", text, err, want)
		}
		if hidden := strings.HasPrefix(text, "0"); errors.Is(err, fs.ErrPermission) != hidden {
			t.Errorf("%q gives error %v; is it ErrPermission? want %v", text, err, hidden)
		}
		if i := tab.find(0); i >= 0 {
			t.Errorf("found function %d in nothing", i)
		}
	}
}

func TestKernelLive(t *testing.T) {
	var k Kernel
	if err := k.Err(); err != nil {
		if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	for _, name := range []string{"schedule", "tcp_sendmsg"} {
		addr, ok := k.Lookup(name)
		if !ok {
			t.Errorf("%s is not known", name)
			continue
		}
		want := Frame{addr + 1, name, 1, Vmlinux}
		if f := k.Frame(addr + 1); f != want {
			t.Errorf("got %#v, want %#v", f, want)
		}
	}

	// An address that is new, of a module perhaps, is looked for again after a while.
	addr, _ := k.Lookup("schedule")
	for _, x := range []struct {
		age  time.Duration
		want string
	}{{0, ""}, {kernelAgain + 1, "schedule"}} {
		var old Kernel
		old.tab.Store(&table{})
		old.last.Store(time.Now().Add(-x.age).UnixNano())
		if f := old.Frame(addr); f.Sym != x.want {
			t.Errorf("%v after reading kallsyms: got %#v, want %q", x.age, f, x.want)
		}
	}
	if f := k.Frame(0xffffffffffffff00); f.Sym != "" {
		t.Errorf("got %#v at the end of memory", f)
	}
}

func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(kallsyms))
	f.Add([]byte("ffffffffffffffff t last\nfffffffffffffff0 t wrap\n1 T a\t[]\n1 T b\t[m]\n1 D c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tab, _ := parseKallsyms(bytes.NewReader(data))
		check(t, tab)
	})
}

// check looks whether a table keeps its promises.
func check(t *testing.T, tab *table) {
	t.Helper()
	for i := range tab.addr {
		if i > 0 && tab.addr[i] < tab.addr[i-1] {
			t.Fatalf("function %d is before %d", i, i-1)
		}
		if tab.size[i] == 0 || tab.addr[i]+uint64(tab.size[i]) < tab.addr[i] {
			t.Fatalf("function %d at %#x has size %d", i, tab.addr[i], tab.size[i])
		}
		if tab.raw(i) == "" || tab.sym(i) == "" {
			t.Fatalf("function %d has no name", i)
		}
		if got := tab.find(tab.addr[i]); got < 0 || tab.addr[got] != tab.addr[i] {
			t.Fatalf("looking for function %d found %d", i, got)
		}
		if tab.mod != nil && int(tab.mod[i]) >= len(tab.mods) {
			t.Fatalf("function %d has module %d of %d", i, tab.mod[i], len(tab.mods))
		}
	}
}
