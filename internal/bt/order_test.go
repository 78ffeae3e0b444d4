// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOrder wants clauses on one probe to run in the order in which they are
// written, whatever the kernel does with what is attached last.
func TestOrder(t *testing.T) {
	const own = "/proc/self/exe:seine/internal/bt.traced"
	calls := func() {
		for i := range 5 {
			sink += traced(i)
		}
	}
	syscalls := func() {
		for range 5 {
			_, _ = unix.Getpgid(0)
		}
	}
	faults := func() {
		b := must(unix.Mmap(-1, 0, 5<<12, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		_ = unix.Munmap(b)
	}
	connect := func() { refused(5) }
	for _, c := range []struct {
		point string
		work  func()
		least int
	}{
		{"u:" + own, calls, 5},
		{"u:" + own + ",u:/proc/self/exe:seine/internal/bt.tracedAt", calls, 5},
		{"ur:" + own[:len(own)-len("traced")] + "plusOne", func() { sink += plusOne(3) }, 1},
		{"t:syscalls:sys_enter_getpgid", syscalls, 5},
		{"rt:sys_enter /arg1 == $1/", syscalls, 5},
		{"software:page-faults:1 /tid == $2/", faults, 5}, // Go's threads have some too
		{"interval:ms:5", nil, 3},
		{"k:tcp_v4_connect", connect, 5},
		{"kr:tcp_v4_connect", connect, 5},
		{"f:tcp_v4_connect", connect, 5},
		{"fr:tcp_v4_connect", connect, 5},
		{"k:tcp_v4_conn*", connect, 5},
		{"kr:tcp_v4_conn*", connect, 5},
		{"BEGIN", func() {}, 1},
		{"END", func() {}, 1},
	} {
		t.Run(c.point, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			o := Options{PIDs: self()}
			text := ""
			for _, letter := range []string{"a", "b", "c"} {
				text += c.point + ` { printf("` + letter + `\n"); } `
			}
			if c.work == nil {
				o.Count = 9
			}
			out, errs := live(t, script(text, fmt.Sprint(unix.SYS_GETPGID), fmt.Sprint(unix.Gettid())), o, c.work)
			got := strings.ReplaceAll(out, "\n", "")
			// Some events come while the first clauses are attached, or the last are read.
			first, last, n := strings.Index(got, "abc"), strings.LastIndex(got, "abc"), strings.Count(got, "abc")
			if n < c.least || last+3-first != 3*n || strings.Contains(errs, "lost") {
				t.Errorf("got %q, want abc at least %d times and nothing between\n%s", got, c.least, errs)
			}
		})
	}
}

// TestMixedOrder has clauses that reach one function by a pattern, by several names
// and by its name alone.
func TestMixedOrder(t *testing.T) {
	for _, kind := range []string{"k", "kr"} {
		points := []string{":tcp_v4_connect", ":tcp_v4_conn*", ":tcp_v4_connect", ":tcp_v4_connect,KIND:tcp_v6_connect", ":tcp_v4_conn*", ":tcp_v4_connect"}
		text, letters := "", ""
		for i, p := range points {
			letter := string(rune('a' + i))
			letters += letter
			text += kind + strings.ReplaceAll(p, "KIND", kind) + ` { printf("` + letter + `\n"); } `
		}
		out, errs := live(t, script(text), Options{PIDs: self()}, func() { refused(5) })
		if got := strings.ReplaceAll(out, "\n", ""); got != strings.Repeat(letters, 5) || strings.Contains(errs, "lost") {
			t.Errorf("%s: got %q, want %s five times\n%s", kind, got, letters, errs)
		}
	}
}

// plusOne returns in C's sense: Go's stack does not move under it.
//
//go:noinline
func plusOne(n int) int { return n + 1 }

// TestEveryTarget wants each probe of a clause to run, when they are of a kind
// too.
func TestEveryTarget(t *testing.T) {
	out, _ := live(t, script(`BEGIN,END { printf("%s\n", probe); exit(); }`), Options{}, nil)
	if out != "BEGIN\nEND\n" {
		t.Errorf("got %q, want BEGIN and END", out)
	}
	out, _ = live(t, script(`BEGIN,END { printf("x\n"); exit(); }`), Options{}, nil)
	if out != "x\nx\n" {
		t.Errorf("got %q, want two lines", out)
	}
	out, _ = live(t, script(`interval:ms:3,interval:ms:7 { @[probe]++; if (@[probe] == 1) { printf("%s\n", probe); } }`), Options{Count: 2}, nil)
	want(t, out, "interval:ms:3\n", "interval:ms:7\n")
	out, _ = live(t, script(`interval:ms:3,interval:s:1000 { @n++; if (@n == 2) { printf("twice\n"); exit(); } }`), Options{}, nil)
	want(t, out, "twice\n") // a tick may still come before it ends
}

// TestLast has events go on while the run ends: none is seen once END has begun.
func TestLast(t *testing.T) {
	needRoot(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	wg.Go(func() {
		for !stop.Load() {
			unix.Getppid()
			runtime.Gosched() // a loop of bare system calls does not stop for the garbage collector
		}
	})
	for range 10 {
		out, _ := live(t, script(`t:syscalls:sys_enter_getppid { @[nsecs] = 1; @n = count(); } END { printf("%d\n", @n > 0); clear(@); clear(@n); }`), Options{PIDs: self()}, func() {
			for range 100 {
				unix.Getppid()
			}
		})
		if out != "1\n" {
			t.Fatalf("got %q …, want what END prints and nothing else", out[:min(len(out), 100)])
		}
	}
}
