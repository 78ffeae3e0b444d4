// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Proc is the parent's side of a child.
type Proc struct {
	PID   int
	TID   int // of the thread that runs the body
	Comm  string
	UID   int
	Host  string
	Netns uint32 // inode of the child's network namespace

	process *os.Process
	in      *os.File
	timeout time.Duration
	stderr  tail
	readers sync.WaitGroup

	news chan struct{} // holds one token when reports or gone changed
	gone chan struct{} // closed when the child has been waited for

	mu      sync.Mutex
	reports []json.RawMessage
	end     *ending
	err     error // why the child failed, once gone is closed
}

// Called reports whether the child has this name, or had it before it set its
// own.
func (p *Proc) Called(comm string) bool {
	ours, _ := os.ReadFile("/proc/self/comm")
	return comm == p.Comm || comm == unnamed || comm == strings.TrimSpace(string(ours))
}

// read collects the child's messages until it closes the pipe.
func (p *Proc) read(f *os.File) {
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			m.End = &ending{Error: fmt.Sprintf("says %q: %v", line, err)}
		}
		p.mu.Lock()
		if m.TID != 0 {
			p.TID = m.TID
		}
		if m.End != nil {
			p.end = m.End
		} else {
			p.reports = append(p.reports, m.Report)
		}
		p.mu.Unlock()
		p.notify()
	}
}

// reap waits for the child's end and returns how it ended.
func (p *Proc) reap() {
	p.readers.Wait()
	state, err := p.process.Wait()
	p.mu.Lock()
	switch {
	case err != nil:
		p.err = err
	case p.end != nil && p.end.Error != "":
		p.err = p.end.err()
	case p.end == nil || !state.Success():
		p.err = fmt.Errorf("ended before its body did: %v%s", state, p.stderr.quote())
	}
	p.mu.Unlock()
	p.in.Close()
	close(p.gone)
	p.notify()
}

func (p *Proc) notify() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// errEnded means that a child returned without an error and without the
// expected report.
var errEnded = errors.New("ended without a report")

// next waits for a report.
func (p *Proc) next() (json.RawMessage, error) {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	for {
		var gone bool
		select {
		case <-p.gone:
			gone = true
		default:
		}
		p.mu.Lock()
		if len(p.reports) > 0 {
			r := p.reports[0]
			p.reports = p.reports[1:]
			p.mu.Unlock()
			return r, nil
		}
		err := p.err
		p.mu.Unlock()
		if gone && err == nil {
			err = errEnded
		}
		if gone {
			return nil, err
		}
		select {
		case <-p.news:
		case <-p.gone:
		case <-late.C:
			return nil, p.late("no report")
		}
	}
}

// Expect waits for the child's next report and decodes it into v. If the child
// has ended instead, the error is its own. Reports keep their order.
func (p *Proc) Expect(v any) error {
	r, err := p.next()
	if err != nil {
		return fmt.Errorf("lab: %s (pid %d): %w", p.Comm, p.PID, err)
	}
	if err := json.Unmarshal(r, v); err != nil {
		return fmt.Errorf("lab: report of %s: %w", p.Comm, err)
	}
	return nil
}

// Tell sends a word to the child, such as "go".
func (p *Proc) Tell(word string) error { return p.write(word) }

// Call is Tell, then Expect.
func (p *Proc) Call(word string, v any) error {
	if err := p.Tell(word); err != nil {
		return err
	}
	return p.Expect(v)
}

func (p *Proc) write(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(b); err != nil {
		return fmt.Errorf("lab: tell %s: %w", p.Comm, err)
	}
	return nil
}

// Wait waits until the child has ended and been reaped, and returns its error.
func (p *Proc) Wait() error {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
		return fmt.Errorf("lab: %s (pid %d): %w", p.Comm, p.PID, p.late("no end"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("lab: %s (pid %d): %w", p.Comm, p.PID, p.err)
	}
	return nil
}

// failure is the error of a child that has failed already, else nil.
func (p *Proc) failure() error {
	select {
	case <-p.gone:
		return p.Wait()
	default:
		return nil
	}
}

// Kill ends the child by SIGKILL and waits for it. It may have ended before.
func (p *Proc) Kill() {
	p.process.Kill()
	<-p.gone
}
