// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// entries is an output that notices when the screen is entered.
type entries struct {
	file *os.File
	n    atomic.Uint64
}

var enter = []byte("\x1b[?1049h")

func (e *entries) Write(b []byte) (int, error) {
	n, err := e.file.Write(b)
	if err == nil && bytes.Contains(b, enter) {
		e.n.Add(1)
	}
	return n, err
}

// The rest makes it a terminal for bubbletea.

func (e *entries) Read(b []byte) (int, error) { return e.file.Read(b) }
func (e *entries) Close() error               { return e.file.Close() }
func (e *entries) Fd() uintptr                { return e.file.Fd() }

// suspend stops the process, as Ctrl-Z does elsewhere, until the shell resumes it. It uses
// SIGSTOP, because SIGTSTP never has its default effect again once Go has caught it.
func suspend(p *tea.Program, t *Terminal, out *entries, done chan struct{}) {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, unix.SIGCONT)
	defer signal.Stop(goOn)
	if p.ReleaseTerminal() != nil {
		return
	}
	t.take(false)
	unix.Kill(0, unix.SIGSTOP)
	select {
	case <-goOn:
	case <-done:
		return
	}
	t.take(true)
	resume(p, out, done)
	p.Send(tea.ResumeMsg{})
}

// resume takes the terminal again, until the screen is there. Bubbletea's old renderer may be
// so late that it stops the clock of the new one, which then never draws.
func resume(p *tea.Program, out *entries, done chan struct{}) {
	const frames = 500 * time.Millisecond // ten of them
	before := out.n.Load()
	for p.RestoreTerminal() == nil {
		for end := time.Now().Add(frames); time.Now().Before(end); {
			select {
			case <-done:
				return
			case <-time.After(frames / 50):
			}
			if out.n.Load() > before {
				return
			}
		}
		if p.ReleaseTerminal() != nil {
			break
		}
	}
	p.Quit() // the terminal has gone
}
