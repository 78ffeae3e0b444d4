// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/host"
)

// TestMain is seine itself where a test starts it as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("SEINE_TEST_MAIN") != "" {
		os.Exit(Main(os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// seine is a command line of seine.
func seine(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if len(host.NeedTrace.Missing()) > 0 {
		t.Skip("needs CAP_BPF and CAP_PERFMON")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Args[0] = "seine"
	cmd.Env = append(os.Environ(), "SEINE_TEST_MAIN=1")
	return cmd
}

// TestOutputs: so many outputs as -n says, and with -d one for each interval, that
// of the end among them.
func TestOutputs(t *testing.T) {
	for _, c := range []struct{ args, head string }{
		{"softirqs -C -i 500ms -n 3", "SOFTIRQ "},
		{"softirqs -C -i 500ms -d 1500ms", "SOFTIRQ "},
		{"funccount t:sched:sched_switch 0.5 3", "FUNC "},
		{"funccount t:sched:sched_switch -i 500ms -d 1500ms", "FUNC "},
		{"argdist -C t:sched:sched_switch() -i 500ms -n 3", "COUNT "},
		{"argdist -C t:sched:sched_switch() -i 500ms -d 1500ms", "COUNT "},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			cmd := seine(t, strings.Fields(c.args)...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if n := strings.Count(string(out), c.head); err != nil || n != 3 {
				t.Errorf("got %v, %d outputs, want 3\n%s%s", err, n, out, errs.String())
			}
		})
	}
}

// TestHangup: when its terminal goes, seine prints what it has, and under nohup
// it goes on.
func TestHangup(t *testing.T) {
	for _, c := range []struct{ args, head string }{
		{"softirqs -C", "SOFTIRQ "}, {"funccount t:sched:sched_switch", "FUNC "}, {"run -e t:sched:sched_switch{@=count()}", "@: "},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			cmd := seine(t, append(strings.Fields(c.args), "-d", "60")...)
			out, took, err := hangup(t, cmd)
			if err != nil || !strings.Contains(out, c.head) || took > 30*time.Second {
				t.Errorf("got %v after %v, want %s\n%s", err, took, c.head, out)
			}
			cmd = seine(t, append([]string{"-c", `trap "" HUP; exec /proc/$PPID/exe "$@"`, "sh"}, append(strings.Fields(c.args), "-d", "1")...)...)
			cmd.Path, cmd.Args[0] = "/bin/sh", "sh"
			if out, took, err = hangup(t, cmd); err != nil || !strings.Contains(out, c.head) || took < time.Second*9/10 {
				t.Errorf("ignored: got %v after %v, want %s after 1s\n%s", err, took, c.head, out)
			}
		})
	}
}

// hangup signals a command when it is ready, and gives its output and how long it
// took from then on.
func hangup(t *testing.T, cmd *exec.Cmd) (out string, took time.Duration, err error) {
	t.Helper()
	var b bytes.Buffer
	cmd.Stdout = &b
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var start time.Time
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "seine: ready") {
			start = time.Now()
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	return b.String(), time.Since(start), err
}

// TestFull: what could not be written is an error of every command that prints.
func TestFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{
		"", "help", "help tcplife", "tcplife -h", "run -h", "list", "list -o json", "man", "man tcplife", "version", "--version", "completion bash",
		"doctor tcplife", "doctor -o json tcplife", "tcplife --columns help", "run --listing -e BEGIN{}",
	} {
		err := execute(t.Context(), append([]string{"seine"}, strings.Fields(args)...), full, io.Discard)
		if !errors.Is(err, syscall.ENOSPC) || code(err) != exitBroken {
			t.Errorf("seine %s: got %v", args, err)
		}
	}
}
