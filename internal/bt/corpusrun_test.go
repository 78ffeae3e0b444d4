// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What corpusWork does; scripts of the corpus say what they make of it, in comments.
//
// One thread opens /nonexistent/corpus 3 times, in vain, and /dev/null 5 times; calls
// getppid 7 times; sleeps twice for 1.234567 ms; syncs /dev/null twice; sends itself
// signal 0 3 times; writes 4 times 40 bytes to /dev/null and reads twice of /dev/zero;
// connects 4 times to port 1, where nobody listens; makes 2 TCP connections with 4
// messages of 100, 1000, 1000 and 5000 bytes on each; sends 5 datagrams of 64, 64, 64,
// 300 and 1200 bytes.
func corpusWork() {
	var st unix.Stat_t
	for range 3 {
		_, _ = unix.Open("/nonexistent/corpus", unix.O_RDONLY, 0)
		_ = unix.Kill(os.Getpid(), 0)
		_ = unix.Stat("/nonexistent/corpus", &st)
	}
	null := must(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))
	for range 4 {
		unix.Close(must(unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)))
		_ = must(unix.Write(null, make([]byte, 40)))
	}
	for range 7 {
		unix.Getppid()
	}
	zero := must(unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	for range 2 {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 1_234_567}, nil)
		_ = unix.Fdatasync(null)
		_ = must(unix.Read(zero, make([]byte, 300)))
	}
	unix.Close(null)
	unix.Close(zero)
	refused(4)
	session(2, 100, 1000, 1000, 5000)
	datagrams(64, 64, 64, 300, 1200)
}

// TestCorpusRuns runs scripts of the corpus over corpusWork and wants lines that
// follow from it: how many, and a pattern of the whole line. Of ours alone are the events
// of calls; Go's own threads add calls of a few kinds, which are not looked at.
func TestCorpusRuns(t *testing.T) {
	needRoot(t)
	type lines struct {
		n    int
		like string
	}
	for _, c := range []struct {
		script string
		named  string
		want   []lines
	}{
		{"testdata/corpus/b_execsnoop.bt", "", []lines{{1, `TIME\(ms\)   PID   ARGS`}}},
		{"testdata/corpus/b_scread.bt", "", []lines{{1, `@name\[zero\]: 2`}}},
		{"testdata/corpus/b_setuids.bt", "", []lines{{0, `.+`}}},
		{"testdata/corpus/b_syscalls.bt", "", []lines{
			{1, `@\[tracepoint:syscalls:sys_enter_getppid\]: 7`}, {1, `@\[tracepoint:syscalls:sys_enter_connect\]: 6`}, {1, `@\[tracepoint:syscalls:sys_enter_fdatasync\]: 2`},
			{1, `@\[tracepoint:syscalls:sys_enter_kill\]: 3`}, {1, `@\[tracepoint:syscalls:sys_enter_socket\]: 9`}, {1, `@\[tracepoint:syscalls:sys_enter_listen\]: 1`},
			{1, `@\[tracepoint:syscalls:sys_enter_sendto\]: 13`}, {1, `@\[tracepoint:syscalls:sys_enter_recvfrom\]: 13`}, {1, `@\[tracepoint:syscalls:sys_enter_bind\]: 2`}}},
		{"testdata/corpus/el_arrays.bt", "", []lines{{1, `@lo: \d+`}, {1, `@\[\[127,0,0,1\]\]: \d+`}}},
		{"testdata/corpus/el_context.bt", "", []lines{{3, `COMM /nonexistent/corpus`}, {1, `COMM /dev/zero`}, {1, `@\[PID, TID, \d+, \d+, \d+, \d+\]: \d+`}, {1, `@pp\[PPID\]: \d+`}}},
		{"testdata/corpus/el_curtask.bt", "", []lines{{1, `@\[TID, PID, COMM, \d+, \d+\]: [2-9]`}}},
		{"testdata/corpus/el_modern.bt", "", []lines{{1, `start`}, {1, `stop`}, {1, `@files\[tracepoint:syscalls:sys_enter_openat, COMM\]: \d+`}}},
		{"testdata/corpus/el_raw.bt", "", []lines{{1, fmt.Sprintf(`@n\[%d\]: 7`, unix.SYS_GETPPID)}, {1, fmt.Sprintf(`@n\[%d\]: 3`, unix.SYS_KILL)}, {1, fmt.Sprintf(`@n\[%d\]: 6`, unix.SYS_CONNECT)}}},
		{"testdata/corpus/el_strings.bt", "", []lines{{1, `1 first`}, {1, `2 second 2`}, {1, `3 5`}, {1, `literal\|   literal\|literal   \|lit\|`}, {1, `@\[COMM\]: 1`}, {0, `never`}}},
		{"testdata/corpus/el_structs.bt", "", []lines{{4, `0  0 0 0 0 0 6`}, {4, `32 16`}, {1, `@x\[0\]: 4`}}},
		{"testdata/corpus/el_ternary.bt", "", []lines{{1, `[xy]*@\[large\]: 2`}}},
		{"testdata/corpus/n_blocks.bt", "", []lines{{1, `@bytes\[COMM\]: 6\d\d`}}},
		{"testdata/corpus/n_buffers.bt", "", []lines{{13, `COMM (\\x00){8} 00 00 00 00`}}},
		{"testdata/corpus/n_comptime.bt", "", []lines{{1, `@s\[COMM\]: \d+`}, {0, `@n.*`}}},
		{"testdata/corpus/n_loop.bt", "", []lines{{1, `332667`}}}, // the sum of all numbers below 1000 that 3 does not divide
		{"testdata/corpus/n_options.bt", "", []lines{{1, `@\[/nonexistent/corpus\]: 3`}, {1, `@\[/dev/zero\]: 1`}, {1, `@\[/dev/null\]: 5`}}},
		{"testdata/corpus/n_options.bt", "--length=8", []lines{{1, `@\[/nonexis\]: 3`}}},
		{"testdata/corpus/n_options.bt", "--comm=no-such", []lines{{0, `.+`}}},
		{"testdata/corpus/n_records.bt", "", []lines{{1, `two`}, {1, `@where\[\{ \.x = 1, \.y = two \}\]: 1`}}},
		{"testdata/corpus/n_stdlib.bt", "", []lines{{0, `.+`}}},
		{"testdata/corpus/n_tuples.bt", "", []lines{{2, `\(PID\)`}, {1, `@\[COMM, true\]: 2`}, {0, `@ssh.*`}}},
		{"testdata/corpus/oneliner01.bt", "", []lines{{1, `@\[PID, COMM\]: 2`}}},
		{"testdata/corpus/oneliner02.bt", "", []lines{{1, `@\[PID, COMM\]: 6`}}},
		{"testdata/corpus/oneliner03.bt", "", []lines{{1, `@\[COMM, 111\]: 4`}}},
		{"testdata/corpus/oneliner13.bt", "", []lines{{0, `.+`}}},
		{"testdata/corpus/opensnoop.bt", "", []lines{{1, `PID +COMM +FD ERR PATH`}, {3, `PID +COMM +-1 +2 /nonexistent/corpus`}, {5, `PID +COMM +\d+ +0 /dev/null`}, {1, `PID +COMM +\d+ +0 /dev/zero`}}},
		{"testdata/corpus/soaccept.bt", "", []lines{{1, `PID +PROCESS +FAM FD`}, {2, `PID +COMM +\d+`}}},
		{"testdata/corpus/soconnlat.bt", "", []lines{{1, `Latency of connect\(2\) by stack\. Ctrl-C ends\.`}, {2, `@us\[`}, {2, `, COMM\]: `}, {0, `@cs.*`}}},
		{"testdata/corpus/so1stbyte.bt", "", []lines{{1, `First byte after connect\. Ctrl-C ends\.`}, {0, `@.*`}}}, // nobody reads where it has connected
		{"testdata/corpus/sofamily.bt", "", []lines{{1, `@connect\[COMM, 2, inet\]: 6`}, {1, `@accept\[COMM, 2, inet\]: 2`}}},
		{"testdata/corpus/t_killsnoop.bt", "", []lines{{3, `.{15} PID +COMM +0 +PID +Success`}}},
		{"testdata/corpus/t_naptime.bt", "", []lines{{2, `\S+ +PPID +\S.* PID +COMM +0\.001234567`}}},
		{"testdata/corpus/t_opensnoop.bt", "", []lines{{3, `PID +COMM +-1 +2 +/nonexistent/corpus`}, {5, `PID +COMM +\d+ +0 +/dev/null`}}},
		{"testdata/corpus/t_opensnoop.bt", "--failed", []lines{{3, `PID +COMM +-1 +2 +/nonexistent/corpus`}, {0, `.*/dev/.*`}}},
		{"testdata/corpus/t_setuids.bt", "", []lines{{0, `.+`}}},
		{"testdata/corpus/t_statsnoop.bt", "", []lines{{3, `PID +COMM +2 /nonexistent/corpus`}}},
		{"testdata/corpus/t_syncsnoop.bt", "", []lines{{2, `\S+ +PID +COMM +tracepoint:syscalls:sys_enter_fdatasync`}}},
		{"testdata/corpus/t_syscount.bt", "", []lines{{1, `@call\[getppid\]: 7`}, {1, `@call\[sendto\]: 13`}, {1, `@call\[recvfrom\]: 13`}, {1, `@call\[socket\]: 9`}}},
	} {
		t.Run(strings.TrimSuffix(filepath.Base(c.script), ".bt")+c.named, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			text := string(must(corpus.ReadFile(c.script)))
			o := options(text)
			if c.named != "" {
				o.Named = []string{c.named}
			}
			var missing *missingError
			if _, err := Compile(&Source{Name: c.script, Text: text}, o); errors.As(err, &missing) {
				t.Skip(missing) // arm64 has fewer system calls
			}
			work := corpusWork
			if strings.HasPrefix(filepath.Base(c.script), "el_strings") { // it ends by itself
				work = nil
			}
			out, errs := live(t, func(run Options) (*Program, error) {
				run.Args, run.Named, run.Unsafe = o.Args, o.Named, o.Unsafe
				return Compile(&Source{Name: c.script, Text: text}, run)
			}, Options{PIDs: self()}, work)
			known := strings.NewReplacer("PPID", fmt.Sprint(os.Getppid()), "PID", fmt.Sprint(os.Getpid()), "TID", fmt.Sprint(unix.Gettid()), "COMM", regexp.QuoteMeta(comm()))
			for _, w := range c.want {
				like := w.like
				if !strings.Contains(like, "PROCESS") && !strings.Contains(like, "FD ERR") && !strings.Contains(like, "ARGS") { // a head
					like = known.Replace(like)
				}
				if got := len(regexp.MustCompile("(?m)^"+like+"$").FindAllString(out, -1)); got != w.n {
					t.Errorf("%d lines like %s, want %d, in\n%s%s", got, like, w.n, out, errs)
				}
			}
		})
	}
}
