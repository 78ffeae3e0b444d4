// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/watch"
)

// pty is a new terminal of 80x24: both ends, and its modes.
func pty(t *testing.T) (master, slave *os.File, modes unix.Termios) {
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
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return master, slave, modesOf(t, slave)
}

func modesOf(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// until reads from a terminal until it has got some text.
func until(t *testing.T, master *os.File, text string) string {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), text) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(buf[:n])
	}
	return got.String()
}

// broken is a source that has a defect: it shows itself at the second look.
type broken struct{ looks int }

func (b *broken) Look(context.Context, time.Time, bool, []watch.ConnKey) (*Snapshot, error) {
	if b.looks++; b.looks > 1 {
		panic("a defect")
	}
	return world(5), nil
}

// TestPanic: a panic while the screen is shown leaves the terminal as it was.
func TestPanic(t *testing.T) {
	master, slave, before := pty(t)
	ended := make(chan error)
	go func() {
		ended <- Run(t.Context(), Options{Source: &broken{}, State: NewState(Services, "", "", false), In: slave, Out: slave, Terminal: Hold(slave), Every: time.Second})
		slave.WriteString("END")
	}()
	shown := make(chan string)
	go func() { shown <- until(t, master, "END") }()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "bug") {
		t.Errorf("got %v, want an error about a bug", err)
	}
	out := <-shown
	on, off := strings.LastIndex(out, "\x1b[?1049h"), strings.LastIndex(out, "\x1b[?1049l")
	if on < 0 || off < on || strings.LastIndex(out, "\x1b[?25h") < strings.LastIndex(out, "\x1b[?25l") {
		t.Errorf("the other screen is on at %d and off at %d, or the cursor is hidden: %q", on, off, out)
	}
	if after := modesOf(t, slave); after != before {
		t.Errorf("the modes are %+v, want %+v", after, before)
	}
}

// TestGuard: a goroutine that panics beside the screen leaves the terminal as it was, and the
// panic goes on.
func TestGuard(t *testing.T) {
	master, slave, before := pty(t)
	held := Hold(slave)
	raw := before
	raw.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	raw.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, &raw); err != nil {
		t.Fatal(err)
	}
	held.take(true)
	again := make(chan any)
	guard := held.Guard // as the engine has it
	go func() {
		defer func() { again <- recover() }()
		defer guard()
		panic("a defect")
	}()
	if r := <-again; r != "a defect" {
		t.Errorf("the panic became %v", r)
	}
	if after := modesOf(t, slave); after != before {
		t.Errorf("the modes are %+v, want %+v", after, before)
	}
	held.Restore() // a second time nothing is written
	slave.WriteString("END")
	if got, want := until(t, master, "END"), leave+"END"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
