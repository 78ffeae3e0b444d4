// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// terminal is a new pseudo-terminal with n lines. Both ends are closed with the
// test.
func terminal(t *testing.T, lines uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal runs seine on a terminal of 11 lines until stdout has what do
// waits for, and returns the terminal's output.
func onTerminal(t *testing.T, do func(p *process), args ...string) string {
	t.Helper()
	master, slave := terminal(t, 11)
	p := start(t, slave, args...)
	slave.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf) // EIO when seine has closed its end
			p.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	do(p)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	<-done
	return p.out.String()
}

const clearScreen = "\x1b[H\x1b[2J"

// An interval tool clears the screen before each output, unless told not to.
func TestClear(t *testing.T) {
	t.Parallel()
	three := func(p *process) { p.await(&p.out, `(?s)(PID COMM.*){3}`) }
	out := onTerminal(t, three, "tcptop", "0.05", "--netns=4294967295")
	if heads, clears := strings.Count(out, "PID COMM"), strings.Count(out, clearScreen); clears != heads {
		t.Errorf("%d outputs and %d clear screens, want as many: %q", heads, clears, out)
	}
	out = onTerminal(t, three, "tcptop", "0.05", "--netns=4294967295", "--no-clear")
	if strings.Contains(out, "\x1b") {
		t.Errorf("control codes with --no-clear: %q", out)
	}
}

// On a terminal of 11 lines the head stands above each 10 rows; nothing is
// cleared.
func TestHeadRepeats(t *testing.T) {
	t.Parallel()
	w, only := twoHosts(t)
	out := onTerminal(t, func(p *process) {
		sessions(t, w, lab.Sessions{Count: 13})
		p.await(&p.out, `(?s)(\d lab-.*){26}\n$`)
	}, append([]string{"tcplife"}, only...)...)
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(out, "\r\n", "\n"), "\n"), "\n")
	var heads []int
	for i, line := range lines {
		if strings.Contains(line, "PID COMM") {
			heads = append(heads, i)
		}
	}
	if fmt.Sprint(heads) != "[0 10 20]" || len(lines) != 29 {
		t.Errorf("heads in lines %v of %d, want [0 10 20] of 29: %q", heads, len(lines), out)
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("an event tool writes control codes: %q", out)
	}
}
