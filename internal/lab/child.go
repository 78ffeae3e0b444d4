// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	seinehost "seine/internal/host"
)

// childEnv marks a process as a child of a world.
const childEnv = "SEINE_LAB_CHILD"

// orderEnv holds the order of a child that has become another one: see Mounts.
const orderEnv = "SEINE_LAB_ORDER"

// bodies are the programs that a child can run, by name.
var bodies = map[string]func(*Child) error{}

// Register names a body, which is the code of a child. It is called while
// packages are initialised. It panics if the name is taken.
//
// The body runs on the main thread of the child, or on that of Options.Thread, and
// is locked to it. It should make blocking system calls ([unix], or the helpers of
// this package), not use package net: then a tool sees exactly the calls that the
// body makes.
func Register(name string, body func(*Child) error) {
	if _, taken := bodies[name]; taken {
		panic("lab: two bodies are called " + name)
	}
	bodies[name] = body
}

// The body is to run on the main thread, so that its TID is its PID. Go gives
// the main goroutine that thread only if it is locked during initialisation.
func init() {
	if isChild() {
		runtime.LockOSThread()
	}
}

// isChild reports whether the environment makes this process a child. Any caller can set
// a variable, so it is ignored if the process has more privileges than its caller.
func isChild() bool { return os.Getenv(childEnv) != "" && !seinehost.Elevated() }

// Main returns at once, except in a child of a world. There it runs the body
// and exits. Call it first in main and in TestMain.
func Main() {
	if !isChild() {
		return
	}
	os.Unsetenv(childEnv) // not for processes that the body may start
	if err := runChild(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is a child's side of the conversation with its parent.
type Child struct {
	// Comm is the name the child runs under.
	Comm string

	arg   json.RawMessage
	words chan string
	mu    sync.Mutex
}

func runChild() error {
	for _, fd := range []int{unix.Stdin, unix.Stdout} {
		if err := unix.SetNonblock(fd, false); err != nil {
			return fmt.Errorf("lab: child: %w", err)
		}
	}
	in := bufio.NewReader(rawFile(unix.Stdin))
	line, err := []byte(os.Getenv(orderEnv)), error(nil)
	again := len(line) > 0
	os.Unsetenv(orderEnv)
	if !again {
		if line, err = in.ReadBytes('\n'); err != nil {
			return fmt.Errorf("lab: child: no order: %w", err)
		}
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("lab: child: order: %w", err)
	}
	c := &Child{Comm: o.Comm, arg: o.Arg, words: make(chan string, 64)}
	go c.listen(in)
	if err := setComm(o.Comm); err != nil {
		return c.send(message{End: endingOf(err)})
	}
	body, ok := bodies[o.Body]
	if !ok {
		return c.send(message{End: endingOf(fmt.Errorf("lab: no body is called %q", o.Body))})
	}
	if o.Thread == "" {
		return c.run(body, again)
	}
	end := make(chan error)
	go func() {
		runtime.LockOSThread() // not the main one: that is locked already
		if err := SetThreadComm(o.Thread); err != nil {
			end <- c.send(message{End: endingOf(err)})
			return
		}
		end <- c.run(body, again)
	}()
	return <-end
}

// run runs the body on this thread. A child that has become another one has reported itself
// before.
func (c *Child) run(body func(*Child) error, again bool) error {
	if !again {
		if err := c.send(message{TID: unix.Gettid()}); err != nil {
			return err
		}
	}
	return c.send(message{End: endingOf(body(c))})
}

const self = "/proc/self/exe"

// successor is the environment of a program that becomes another child.
func successor(comm, body string, arg any) ([]string, error) {
	a, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	b, err := encode(order{Comm: comm, Body: body, Arg: a})
	return append(os.Environ(), childEnv+"=1", orderEnv+"="+string(b)), err
}

// Become makes the process run another body under another name, by exec. Descriptors without
// close-on-exec stay open.
func (c *Child) Become(comm, body string, arg any) error {
	env, err := successor(comm, body, arg)
	if err != nil {
		return err
	}
	return unix.Exec(self, []string{comm}, env)
}

// listen passes on the parent's words. When its input ends, the parent has
// ended, and this process ends too.
func (c *Child) listen(in *bufio.Reader) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(1)
		}
		var word string
		if json.Unmarshal(line, &word) == nil {
			c.words <- word
		}
	}
}

// Arg decodes the argument that the child was started with.
func (c *Child) Arg(v any) error {
	if err := json.Unmarshal(c.arg, v); err != nil {
		return fmt.Errorf("lab: argument of %s: %w", c.Comm, err)
	}
	return nil
}

// Report sends v to the parent, which takes it with [Proc.Expect].
func (c *Child) Report(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("lab: report %T: %w", v, err)
	}
	return c.send(message{Report: b})
}

// Next waits for the parent's next word.
func (c *Child) Next() string { return <-c.words }

// Await waits for one word; another one is an error.
func (c *Child) Await(word string) error {
	if got := c.Next(); got != word {
		return fmt.Errorf("lab: %s was told %q, waits for %q", c.Comm, got, word)
	}
	return nil
}

// Told reports whether the parent has sent a word that [Child.Next] has not
// taken yet. Loops use it to run until they are told to stop.
func (c *Child) Told() bool { return len(c.words) > 0 }

func (c *Child) send(m message) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = rawFile(unix.Stdout).Write(b)
	return err
}

// rawFile reads and writes a descriptor by plain blocking calls. os.File would use the runtime's
// epoll, whose calls a tool would count too.
type rawFile int

func (f rawFile) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (f rawFile) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(f), b[done:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return done, err
		}
		done += max(n, 0)
	}
	return done, nil
}
