// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// preempting makes events on one processor, of one thread all the time and of
// another one that preempts it again and again: some of them inside of a program.
// It gives how many they were.
func preempting(t *testing.T) (n int) {
	const wakes, each = 1009, 3
	event := func() { _, _ = unix.Getpgid(0) }
	stop := busy(t, event)
	done := make(chan int)
	pinned(t, unix.SCHED_FIFO, func() {
		wake(wakes, each, event)
		done <- wakes * each
	})
	n = <-done
	_, more := stop()
	return n + more
}

// busy makes events in a thread on the first processor until it is stopped, and
// returns after the first one: a thread that waits for a busy processor would be
// preempted nowhere. Its end gives the thread and how many events there were.
func busy(t *testing.T, event func()) (end func() (tid, n int)) {
	// A thread of FIFO may wait for the collector in a loop, and keep it from the processor.
	gc := debug.SetGCPercent(-1)
	begun, done := make(chan bool), make(chan [2]int)
	var stop atomic.Bool
	pinned(t, unix.SCHED_NORMAL, func() {
		event()
		close(begun)
		n := 1
		for ; !stop.Load(); n++ {
			event()
		}
		done <- [2]int{unix.Gettid(), n}
	})
	<-begun
	return func() (tid, n int) {
		stop.Store(true)
		d := <-done
		debug.SetGCPercent(gc)
		return d[0], d[1]
	}
}

// pinned runs work in a thread of its own on the first processor.
func pinned(t *testing.T, policy uint32, work func()) {
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		var one unix.CPUSet
		one.Set(0)
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy}
		if policy == unix.SCHED_FIFO {
			attr.Priority = 1
		}
		if err := errors.Join(unix.SchedSetaffinity(0, &one), unix.SchedSetAttr(0, &attr, 0)); err != nil {
			t.Error(err)
		}
		work()
	}()
}

// wake makes some events after each of many short sleeps. It sleeps four times as
// long as its events took: on a slow processor, too, time is left for what it preempts.
func wake(wakes, each int, event func()) {
	took := time.Duration(0)
	for range wakes {
		sleep := unix.NsecToTimespec(max(50*time.Microsecond, 4*took).Nanoseconds())
		_ = unix.Nanosleep(&sleep, nil)
		begun := time.Now()
		for range each {
			event()
		}
		took = time.Since(begun)
	}
}

// TestPreempted has a program preempted inside of it, which the kernel then skips
// from 7.0 on: no event is lost, or it is said.
func TestPreempted(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"raw tracepoint", `rt:sys_enter /pid == $1 && arg1 == $2/ { @[kstack, comm] = count(); }`},
		{"fentry", `f:__x64_sys_getpgid /pid == $1/ { @[kstack, comm] = count(); }`},
		{"fexit", `fr:__x64_sys_getpgid /pid == $1/ { @[kstack, comm] = count(); }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "raw tracepoint" && (running().fentry() != nil || runtime.GOARCH != "amd64") {
				t.Skip("no fentry, or another name")
			}
			n := 0
			out, errs, _ := once(t, script(c.text, fmt.Sprint(os.Getpid()), fmt.Sprint(unix.SYS_GETPGID)), Options{}, func() { n = preempting(t) })
			got, lost := 0, 0
			for _, m := range regexp.MustCompile(`\]: (\d+)\n`).FindAllStringSubmatch(out, -1) {
				n, _ := strconv.Atoi(m[1])
				got += n
			}
			for _, m := range regexp.MustCompile(`(?m)^(\d+) (runs?|events?|stacks?|updates?) `).FindAllStringSubmatch(errs, -1) {
				n, _ := strconv.Atoi(m[1])
				lost += n
			}
			if got > n || got+lost < n || got < n-n/1000 {
				t.Errorf("got %d events and %d lost, want %d events", got, lost, n)
			}
			t.Logf("%d of %d events, %d lost", got, n, lost)
		})
	}
}

// TestPreemptedScratch runs the way in which scratch memory is taken where
// programs are preempted.
func TestPreemptedScratch(t *testing.T) {
	for _, preempt := range []bool{false, true} {
		if preempt && !fetches() {
			t.Skip("this kernel has no atomic operations that give the old value, and is none that needs them")
		}
		k := newKernel()
		k.preempt = func() bool { return preempt }
		out, errs := live(t, func(o Options) (*Program, error) {
			s, err := Parse(&Source{Name: "-e", Text: `t:syscalls:sys_enter_openat /str(args.filename) == "/nonexistent/file"/ { @[str(args.filename)] = count(); }`})
			if err != nil {
				return nil, err
			}
			return compile(s, k, o)
		}, Options{PIDs: self()}, func() {
			for range 17 {
				_, _ = unix.Open("/nonexistent/file", unix.O_RDONLY, 0)
			}
		})
		want(t, out, "@[/nonexistent/file]: 17\n")
		if strings.Contains(errs, "not handled") {
			t.Error(errs)
		}
	}
}

// fetches says whether programs can change memory and get what was there (5.12).
func fetches() bool {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8),
		fetchOr(asm.R2, asm.R0),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	if err == nil {
		prog.Close()
	}
	return err == nil
}

// TestUprobeStack has threads preempt one another inside of a uprobe's program, on
// one processor: what the program keeps on its stack stays each thread's own. From
// 6.13 on the kernel gives programs one stack for each processor, and uprobes can
// be preempted.
func TestUprobeStack(t *testing.T) {
	const wakes, each, threads = 307, 3, 3
	reg := map[string]string{"amd64": "ax", "arm64": "r0"}[runtime.GOARCH]
	text := `u:/proc/self/exe:seine/internal/bt.traced /pid == $1/ {
		$a = reg("` + reg + `"); $b = (uint64)tid; $n = (uint64)0;
		unroll (40) { $n += nsecs; }
		@[tid, $a, $b, $n > 0] = count();
	}`
	event := func() { sink += traced(unix.Gettid()) }
	counts := map[string]int{}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads + 2)) // no thread waits for Go's leave to run
	out, errs := live(t, script(text, fmt.Sprint(os.Getpid())), Options{}, func() {
		count := func(tid, n int) { counts[fmt.Sprintf("@[%d, %[1]d, %[1]d, true]", tid)] = n }
		stop := busy(t, event)
		done := make(chan int)
		for range threads {
			pinned(t, unix.SCHED_FIFO, func() {
				wake(wakes, each, event)
				done <- unix.Gettid()
			})
		}
		for range threads {
			count(<-done, wakes*each)
		}
		count(stop())
	})
	lost := 0
	for _, m := range regexp.MustCompile(`(?m)^(\d+) (runs?|events?|stacks?|updates?) `).FindAllStringSubmatch(errs, -1) {
		lost += must(strconv.Atoi(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?m)^(@\[.*\]): (\d+)$`).FindAllStringSubmatch(out, -1) {
		got := must(strconv.Atoi(m[2]))
		if n := counts[m[1]]; got > n || got+lost < n {
			t.Errorf("got %s: %d, want %d (%d lost)", m[1], got, n, lost)
		}
		delete(counts, m[1])
	}
	if len(counts) > 0 {
		t.Errorf("missing: %v", counts)
	}
}
