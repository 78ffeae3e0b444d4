// SPDX-License-Identifier: Apache-2.0

package top

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// leave are the control codes that undo what a full-screen program does: synchronised output,
// mouse, bracketed paste and keyboard modes off, the cursor shown, colours reset, and the
// screen as it was before.
const leave = "\x1b[?2026l\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2027l\x1b[<u\x1b[>4m\x1b[m\x1b[?25h\x1b[?1049l"

// A Terminal keeps the state of a terminal before a screen takes it.
type Terminal struct {
	out   *os.File
	was   *unix.Termios
	taken bool
	mu    sync.Mutex
}

// Hold saves the state of the terminal.
func Hold(out *os.File) *Terminal {
	t := &Terminal{out: out}
	t.was, _ = unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return t
}

// take notes that a screen has taken the terminal, or has given it back.
func (t *Terminal) take(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = yes
}

// Restore restores the terminal if a screen has it. Any goroutine may call it, more than
// once.
func (t *Terminal) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		return
	}
	t.taken = false
	t.out.WriteString(leave)
	if t.was != nil {
		unix.IoctlSetTermios(int(t.out.Fd()), unix.TCSETS, t.was)
	}
}

// Guard is deferred by goroutines that run beside the screen. Their panic must not leave the
// terminal unusable, and its message must not vanish with the screen.
func (t *Terminal) Guard() {
	if r := recover(); r != nil {
		t.Restore()
		panic(r)
	}
}
