// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestToolScripts runs scripts of the corpus that are tools over workloads of known
// counts and values.
func TestToolScripts(t *testing.T) {
	pid := os.Getpid()
	const n = 17
	none := "/nonexistent/tool"
	for _, c := range []struct {
		script string
		named  []string
		work   func()
		want   string // a line
		times  int    // 0: once
	}{
		{"testdata/corpus/t_opensnoop.bt", []string{"--failed"}, func() {
			for range n {
				_, _ = unix.Open(none, unix.O_RDONLY, 0)
			}
		}, fmt.Sprintf(`%d +\S.* -1 +2 +%s`, pid, none), n},
		{"testdata/corpus/t_opensnoop.bt", nil, func() {
			for range n {
				fd := must(unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0))
				unix.Close(fd)
			}
		}, fmt.Sprintf(`%d +\S.* \d+ +0 +/dev/null`, pid), n},
		{"testdata/corpus/t_syscount.bt", nil, func() {
			for range n {
				unix.Getppid()
			}
		}, fmt.Sprintf(`@call\[getppid\]: %d`, n), 0},
		{"testdata/corpus/t_killsnoop.bt", nil, func() {
			for range n {
				_ = unix.Kill(pid, 0)
				_ = unix.Kill(0x3fffffff, 0)
			}
		}, fmt.Sprintf(`.{15} %d +\S.* 0 +1073741823 No such process`, pid), n},
		{"testdata/corpus/t_killsnoop.bt", nil, func() {
			for range n {
				_ = unix.Kill(pid, 0)
			}
		}, fmt.Sprintf(`.{15} %d +\S.* 0 +%d +Success`, pid, pid), n},
		{"testdata/corpus/t_statsnoop.bt", nil, func() {
			var st unix.Stat_t
			for range n {
				_ = unix.Stat(none, &st)
			}
		}, fmt.Sprintf(`%d +\S.* +2 %s`, pid, none), n},
		{"testdata/corpus/t_naptime.bt", nil, func() {
			for range n {
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 1_234_567}, nil)
			}
		}, fmt.Sprintf(`\S+ +%d +\S.* %d +\S.* 0\.001234567`, os.Getppid(), pid), n},
		{"testdata/corpus/t_syncsnoop.bt", nil, func() {
			fd := must(unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0))
			defer unix.Close(fd)
			for range n {
				_ = unix.Fdatasync(fd)
			}
		}, fmt.Sprintf(`\S+ +%d +\S.* tracepoint:syscalls:sys_enter_fdatasync`, pid), n},
		{"testdata/corpus/b_setuids.bt", nil, func() {
			for range n { // of a thread, to what it is
				_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), ^uintptr(0), ^uintptr(0))
			}
		}, fmt.Sprintf(`@\[.*, tracepoint:syscalls:sys_enter_setresuid\]: %d`, n), 0},
	} {
		t.Run(strings.TrimSuffix(filepath.Base(c.script), ".bt"), func(t *testing.T) {
			text := string(must(corpus.ReadFile(c.script)))
			var missing *missingError
			if _, err := Compile(&Source{Name: c.script, Text: text}, Options{Named: c.named}); errors.As(err, &missing) {
				t.Skip(missing) // arm64 has fewer system calls
			}
			out, errs := live(t, func(o Options) (*Program, error) {
				o.Named = c.named
				return Compile(&Source{Name: c.script, Text: text}, o)
			}, Options{PIDs: self()}, c.work)
			got := len(regexp.MustCompile("(?m)^"+c.want+"$").FindAllString(out, -1))
			if got != max(c.times, 1) {
				t.Errorf("got %d lines like %s, want %d, and\n%s in\n%s", got, c.want, max(c.times, 1), errs, out)
			}
		})
	}
	t.Run("t_execsnoop", func(t *testing.T) {
		text := string(must(corpus.ReadFile("testdata/corpus/t_execsnoop.bt")))
		out, _ := live(t, func(o Options) (*Program, error) { return Compile(&Source{Name: "t_execsnoop", Text: text}, o) }, Options{}, func() {
			for range 5 {
				cmd := exec.Command("/proc/self/exe", "-test.run=^$", "some words")
				cmd.Args[0] = "traced"
				check(cmd.Run())
			}
		})
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^.{15} \d+ +%d +traced -test\.run=\^\$ some words$`, pid))
		if got := len(line.FindAllString(out, -1)); got != 5 {
			t.Errorf("got %d processes, want 5, in\n%s", got, out)
		}
	})
}
