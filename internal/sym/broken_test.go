// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"slices"
	"testing"
)

func TestBroken(t *testing.T) {
	const libc, app = "/usr/lib/libc.so.6", "/usr/bin/app"
	in := func(module, sym string) Frame { return Frame{Addr: 1, Sym: sym, Module: module} }
	for _, x := range []struct {
		what    string
		frames  []Frame
		culprit string
		broken  bool
	}{
		{"nothing sampled", nil, "", false},
		{"whole", []Frame{in(libc, "connect"), in(app, "main"), in(libc, "__libc_start_call_main"), in(libc, "__libc_start_main"), in(app, "_start")}, "", false},
		{"a thread", []Frame{in(libc, "connect"), in(app, "work"), in(libc, "start_thread"), in(libc, "clone3")}, "", false},
		{"a goroutine", []Frame{in(app, "syscall.Syscall6"), in(app, "main.main"), in(app, "runtime.goexit")}, "", false},
		{"stripped program", []Frame{in(libc, "connect"), in(app, ""), in(libc, ""), in(libc, "__libc_start_main"), in(app, "")}, "", false},
		{"stripped library", []Frame{in(libc, "connect"), in(app, "main"), in(libc, "")}, "", false},
		{"garbage after the start", []Frame{in(libc, "connect"), in(app, "main"), in(libc, "__libc_start_call_main"), {Addr: 1}}, "", false},
		{"one frame", []Frame{in(libc, "connect")}, libc, true},
		{"two frames", []Frame{in(libc, "connect"), in(libc, "")}, libc, true},
		{"ends early", []Frame{in(libc, "connect"), in(app, "a"), in(app, "b")}, app, true},
		{"garbage", []Frame{in(libc, "connect"), {Addr: 0x123456}}, libc, true},
		{"garbage in between", []Frame{in(libc, "connect"), in(app, "a"), {Addr: 7}, in(app, "main"), in(libc, "__libc_start_main")}, app, true},
		{"only garbage", []Frame{{Addr: 7}}, "", true},
		{"cut", slices.Repeat([]Frame{in(app, "recurse")}, 127), "", false},
	} {
		culprit, broken := Broken(x.frames)
		if culprit != x.culprit || broken != x.broken {
			t.Errorf("%s: got %q, %v; want %q, %v", x.what, culprit, broken, x.culprit, x.broken)
		}
	}
}

func TestString(t *testing.T) {
	for want, f := range map[string]Frame{
		"connect":        {Addr: 1, Sym: "connect", Off: 3, Module: "/usr/lib/libc.so.6"},
		"libc.so.6+0x1f": {Addr: 1, Off: 31, Module: "/usr/lib/libc.so.6"},
		"[anon:a/b]+0x1": {Addr: 1, Off: 1, Module: "[anon:a/b]"},
		"0xabc":          {Addr: 0xabc},
	} {
		if got := f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
